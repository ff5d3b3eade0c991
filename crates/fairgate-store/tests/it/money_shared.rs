//! Money with several gateways on one PostgreSQL.

use fairgate_store::{
    AuditQuery, BudgetScope, BudgetTier, BudgetUnit, DirectoryChange, DirectoryLimits,
    ReservationRefused,
};

use crate::database::{Kind, run};
use crate::money::{
    asks, costs, everybody, group_budgets, hosted_budgets, money, price, stands, sums_equal_rows,
};
use crate::rows::{NOW, after, tenant};

#[test]
fn gateways_that_share_a_groups_money_never_get_over() {
    run(Kind::Postgres, |database| async move {
        const LIMIT: u64 = 40_000;
        const HOSTED: u64 = 15_000;
        let stores = [database.open().await, database.open().await, database.open().await];
        for name in ["chat", "batch"] {
            tenant(&stores[0], name, DirectoryLimits::default()).await;
        }
        group_budgets(&stores[0], vec![money(LIMIT, BudgetTier::Any)]).await;
        hosted_budgets(&stores[0], vec![money(HOSTED, BudgetTier::Hosted)]).await;
        let tasks: Vec<_> = (0..300_u32)
            .map(|number| {
                let store = stores[usize::try_from(number % 3).unwrap()].clone();
                let name = if number % 2 == 0 { "chat" } else { "batch" };
                tokio::spawn(async move {
                    let request = format!("r{number}");
                    let mut asked = asks(&request, name, 10, 200, Some(333));
                    asked.at = after(number.into());
                    let (spent, tier) = match store.reserve(asked).await.unwrap() {
                        Ok(granted) if granted.hosted => (333, 1),
                        Ok(_) => (200, 0),
                        Err(ReservationRefused::Budget(exhausted)) => {
                            assert_eq!(exhausted.scope, BudgetScope::Group);
                            (0, 0)
                        }
                        Err(refused) => panic!("{refused:?}"),
                    };
                    let mut row = costs(&request, name, 10, spent, tier);
                    row.started_at = after(number.into());
                    store.record(row).await.unwrap();
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        // Whoever reads brings in its own rows, not those of others.
        for store in &stores {
            store.budgets(everybody("chat", "k"), NOW).await.unwrap();
        }
        let left = stores[1].budgets(everybody("chat", "k"), NOW).await.unwrap();
        let (used, reserved) =
            stands(&left, BudgetScope::Group, BudgetUnit::Money, BudgetTier::Any);
        assert!(used <= LIMIT && used > LIMIT - 333 && reserved == 0, "{left:?}");
        let (used, reserved) =
            stands(&left, BudgetScope::Hosted, BudgetUnit::Money, BudgetTier::Hosted);
        assert!(used <= HOSTED && reserved == 0, "{left:?}");
        sums_equal_rows(&stores[2], &[("chat", "k"), ("batch", "k")]).await;
    });
}

#[test]
fn gateways_that_start_together_audit_a_price_once() {
    run(Kind::Postgres, |database| async move {
        let stores = [database.open().await, database.open().await, database.open().await];
        let starts = stores.clone().map(|store| {
            let prices = vec![price("a", "USD", 1), price("b", "USD", 2)];
            let keep = DirectoryChange::KeepPrices { prices };
            tokio::spawn(async move { store.change("config", NOW, keep).await.unwrap() })
        });
        for start in starts {
            start.await.unwrap();
        }
        let audit = stores[0].audit(AuditQuery::default()).await.unwrap();
        assert_eq!(audit.iter().filter(|entry| entry.action == "price.add").count(), 2);
        assert_eq!(stores[1].prices().await.unwrap().len(), 2);
    });
}
