//! Tests of the output: text with and without colour, in narrow and wide terminals, and well-formed
//! pictures.

use fairgate_prove::judge::judge;
use fairgate_prove::render::{TextStyle, svg, text};
use fairgate_prove::report::ProveReport;
use fairgate_prove::scenario::{ExperimentLength, published};

use crate::stage::{Flaws, play};

fn reports() -> Vec<ProveReport> {
    let published = published(ExperimentLength::Quick).into_iter();
    published.map(|scenario| judge(&scenario, &play(&scenario, &Flaws::default()))).collect()
}

#[test]
fn text_has_every_tenant_and_every_bar_and_keeps_to_its_width() {
    for report in reports() {
        for width in [20, 60, 80, 200] {
            let plain = text(&report, TextStyle { width, colour: false });
            assert!(!plain.contains('\x1b'), "no colour means none");
            for tenant in &report.tenants {
                assert!(plain.contains(tenant.name), "{plain}");
            }
            for bar in &report.bars {
                assert!(plain.contains(&format!("pass  {}", bar.name)), "{plain}");
            }
            let dots = |line: &&str| line.contains('│') || line.contains('┤');
            for line in plain.lines().filter(dots) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
            assert_eq!(plain.contains("tokens settled"), width >= 48);
        }
        let colour = text(&report, TextStyle { width: 80, colour: true });
        assert!(colour.contains("\x1b[32mpass\x1b[0m"), "{colour}");
    }
}

#[test]
fn a_failed_bar_is_told_apart() {
    let mut report = reports().remove(0);
    report.bars[2].passed = false;
    assert!(!report.passed());
    let plain = text(&report, TextStyle { width: 100, colour: false });
    assert!(plain.contains("FAIL  within the bound"), "{plain}");
    assert!(svg(&report).contains("a bar FAILED"));
}

/// Every opened element is closed, and all numbers are valid.
#[test]
fn pictures_are_well_formed() {
    for report in reports() {
        let picture = svg(&report);
        if let Ok(folder) = std::env::var("FAIRGATE_PICTURES") {
            std::fs::write(format!("{folder}/{}.svg", report.scenario), &picture).unwrap();
        }
        for path in picture.split(" d=\"").skip(1) {
            let path = path.split('"').next().unwrap();
            let known = |c: char| c.is_ascii_digit() || "MLHVZ. -".contains(c);
            assert!(!path.is_empty() && path.chars().all(known), "{path}");
        }
        for element in ["svg", "style", "text"] {
            let opened = picture.matches(&format!("<{element}")).count();
            assert_eq!(opened, picture.matches(&format!("</{element}>")).count(), "{element}");
        }
        let paths = picture.matches("<path").count();
        assert!(paths >= 2 * report.tenants.len(), "a curve and an ideal or slots each");
        assert_eq!(
            picture.matches("class=\"band").count(),
            match report.by_slots {
                true => 0,
                false => report.tenants.len(),
            }
        );
    }
}

#[test]
fn a_report_is_json_with_its_bars_and_its_numbers() {
    let report = reports().remove(0);
    let value = serde_json::to_value(&report).unwrap();
    assert_eq!(value["scenario"], "two-tenants");
    assert_eq!(value["tenants"][1]["weight"], 50);
    assert_eq!(value["bars"].as_array().unwrap().len(), report.bars.len());
    assert_eq!(value["bars"][0]["passed"], true);
    let points = value["course"]["points"].as_array().unwrap();
    assert!((100..=481).contains(&points.len()), "{}", points.len());
    let last = &points[points.len() - 1]["tokens"];
    assert!(last[0].as_u64() > last[1].as_u64(), "{last}");
}
