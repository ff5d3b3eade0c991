//! What tasks' commands print. In these tests 1000 bytes of each claim are kept.

use fairgate_api::fleet::LogPage;
use fairgate_fleet::{FleetError, TaskRelease};

use crate::world::{World, agent, field, on_every_database};

on_every_database! {
    pieces_become_one, what_comes_again_is_left_out, gaps_stay, floods_are_bounded,
    many_small_pieces_are_few_rows, logs_are_fenced_and_old_ones_go, characters_are_not_cut,
    bytes_with_gaps_between_are_few_rows_too, logs_of_tasks_that_ended_long_ago_go,
}

async fn append(world: &World, epoch: u64, first: u64, text: &[u8]) -> u64 {
    world.fleet.append_log(&agent("a"), "x", epoch, first, text.to_vec()).await.unwrap()
}

async fn page(world: &World, first: u64) -> LogPage {
    world.fleet.log("x", None, first).await.unwrap()
}

async fn begin(world: &World) -> u64 {
    world.add(&["x"]).await;
    let empty = page(world, 7).await;
    assert_eq!((empty.epoch, empty.first_byte, empty.next_byte, empty.ended), (0, 0, 0, true));
    world.hold("x", "a").await
}

async fn pieces_become_one(world: World) {
    let epoch = begin(&world).await;
    assert_eq!(append(&world, epoch, 0, b"hello ").await, 6);
    assert_eq!(append(&world, epoch, 6, b"world").await, 11);
    let whole = page(&world, 0).await;
    assert_eq!((whole.text.as_str(), whole.next_byte, whole.ended), ("hello world", 11, false));
    assert_eq!(
        (page(&world, 6).await.text.as_str(), page(&world, 11).await.text.as_str()),
        ("world", "")
    );
    assert_eq!(page(&world, 99).await.next_byte, 11);
    world.fleet.release(&agent("a"), "x", epoch, TaskRelease::default()).await.unwrap();
    assert!(page(&world, 0).await.ended);
    // The last piece may come after the end.
    assert_eq!(append(&world, epoch, 11, b"!").await, 12);
}

async fn what_comes_again_is_left_out(world: World) {
    let epoch = begin(&world).await;
    append(&world, epoch, 0, b"0123456789").await;
    assert_eq!(append(&world, epoch, 0, b"0123456789").await, 10);
    assert_eq!(append(&world, epoch, 4, b"456").await, 10);
    assert_eq!(append(&world, epoch, 8, b"89ab").await, 12);
    assert_eq!(append(&world, epoch, 12, b"").await, 12);
    assert_eq!(page(&world, 0).await.text, "0123456789ab");
}

async fn gaps_stay(world: World) {
    let epoch = begin(&world).await;
    append(&world, epoch, 0, b"begin").await;
    assert_eq!(append(&world, epoch, 100, b"end").await, 103);
    let first = page(&world, 0).await;
    assert_eq!((first.text.as_str(), first.next_byte), ("begin", 5));
    let second = page(&world, first.next_byte).await;
    assert_eq!((second.first_byte, second.text.as_str(), second.next_byte), (100, "end", 103));
}

async fn floods_are_bounded(world: World) {
    let epoch = begin(&world).await;
    let line: Vec<u8> = (0..100_u32).flat_map(|n| format!("{n:09}\n").into_bytes()).collect();
    let mut next = 0;
    for _ in 0..20 {
        next = append(&world, epoch, next, &line).await;
    }
    assert_eq!(next, 20_000);
    let kept = world.number("SELECT CAST(SUM(LENGTH(bytes)) AS BIGINT) FROM fleet_logs").await;
    assert!((875..=1000).contains(&kept), "{kept}");
    let page = page(&world, 0).await;
    assert_eq!(page.next_byte, 20_000);
    assert_eq!(page.dropped_bytes, 20_000 - u64::try_from(kept).unwrap());
    assert_eq!(page.first_byte, page.dropped_bytes);
    assert!(page.text.ends_with("000000099\n"));
    // More at once than is kept.
    let big = vec![b'x'; 256 << 10];
    next = append(&world, epoch, next, &big).await;
    assert_eq!(next, 20_000 + (256 << 10));
    let too_big = vec![b'x'; (256 << 10) + 1];
    let refused = world.fleet.append_log(&agent("a"), "x", epoch, next, too_big).await;
    assert_eq!(field(refused), "body");
    let far = world.fleet.append_log(&agent("a"), "x", epoch, u64::MAX, vec![1]).await;
    assert_eq!(field(far), "first_byte");
}

async fn many_small_pieces_are_few_rows(world: World) {
    let epoch = begin(&world).await;
    for n in 0..500_u64 {
        append(&world, epoch, n, b".").await;
    }
    assert_eq!(world.number("SELECT COUNT(*) FROM fleet_logs").await, 4);
    assert_eq!(page(&world, 0).await.text, ".".repeat(500));
}

/// Each write looks at all pieces, so there must not be a piece for every byte.
async fn bytes_with_gaps_between_are_few_rows_too(world: World) {
    let epoch = begin(&world).await;
    for n in 0..300_u64 {
        append(&world, epoch, 2 * n, b".").await;
    }
    let rows = world.number("SELECT COUNT(*) FROM fleet_logs").await;
    assert!((2..=70).contains(&rows), "{rows}");
    assert_eq!(page(&world, 598).await.text, ".");
    // A gap here and there costs nothing of what is kept.
    world.add(&["y"]).await;
    let epoch = world.hold("y", "a").await;
    for n in 0..9_u64 {
        let line = format!("{n:0100}");
        world.fleet.append_log(&agent("a"), "y", epoch, 101 * n, line.into_bytes()).await.unwrap();
    }
    let kept = "SELECT CAST(SUM(LENGTH(bytes)) AS BIGINT) FROM fleet_logs WHERE task = 'y'";
    assert_eq!(world.number(kept).await, 900);
}

async fn logs_are_fenced_and_old_ones_go(world: World) {
    world.add(&["x"]).await;
    for n in 1..=6 {
        let epoch = world.hold("x", "a").await;
        append(&world, epoch, 0, format!("claim {n}").as_bytes()).await;
    }
    let stale = world.fleet.append_log(&agent("a"), "x", 5, 7, b"more".to_vec()).await;
    assert!(matches!(stale, Err(FleetError::LeaseLost { .. })), "{stale:?}");
    let other = world.fleet.append_log(&agent("b"), "x", 6, 7, b"more".to_vec()).await;
    assert!(matches!(other, Err(FleetError::NotFound { .. })), "b never had it: {other:?}");
    assert_eq!(page(&world, 0).await.text, "claim 6");
    let of = |epoch| world.fleet.log("x", Some(epoch), 0);
    let third = of(3).await.unwrap();
    assert_eq!((third.text.as_str(), third.ended), ("claim 3", true));
    assert_eq!(of(2).await.unwrap().text, "");
    assert_eq!(field(of(7).await), "epoch");
    let unknown = world.fleet.log("none", None, 0).await;
    assert!(matches!(unknown, Err(FleetError::NotFound { what: "task", .. })));
}

async fn characters_are_not_cut(world: World) {
    let epoch = begin(&world).await;
    let text = "ab€".as_bytes();
    append(&world, epoch, 0, &text[..4]).await;
    let first = page(&world, 0).await;
    assert_eq!((first.text.as_str(), first.next_byte), ("ab", 2));
    append(&world, epoch, 4, &text[4..]).await;
    assert_eq!(page(&world, first.next_byte).await.text, "€");
    // What is no text is shown as that.
    append(&world, epoch, 5, b"\xff\xfez").await;
    assert_eq!(page(&world, 5).await.text, "\u{fffd}\u{fffd}z");
}

async fn logs_of_tasks_that_ended_long_ago_go(world: World) {
    let write = |task: &'static str| {
        let world = &world;
        async move {
            let epoch = world.hold(task, "a").await;
            let bytes = b"something".to_vec();
            world.fleet.append_log(&agent("a"), task, epoch, 0, bytes).await.unwrap();
            epoch
        }
    };
    world.add(&["old", "held", "new"]).await;
    for task in ["old", "new"] {
        let epoch = write(task).await;
        world.fleet.complete(&agent("a"), task, epoch, Default::default()).await.unwrap();
        world.pass(1_000);
    }
    write("held").await;
    let before = fairgate_store::UnixMicros(world.now().0 - 1_500_000_000);
    assert_eq!(world.fleet.forget_logs(before).await.unwrap(), 1);
    assert_eq!(world.fleet.forget_logs(before).await.unwrap(), 0);
    for (task, text) in [("old", ""), ("held", "something"), ("new", "something")] {
        assert_eq!(world.fleet.log(task, None, 0).await.unwrap().text, text, "{task}");
    }
}
