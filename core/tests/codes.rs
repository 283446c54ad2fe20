//! The error codes are a promise to every host: names and numbers never change, and new ones are added to the list by
//! hand (STYLE §4).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use turnwheel::Code;

const PINNED: &str = include_str!("../../tests/abi/codes.txt");

#[test]
fn the_codes_are_the_pinned_ones_in_order_of_their_numbers() {
    let mut declared = String::new();
    for (name, number) in Code::ALL {
        let _ = writeln!(declared, "{number} {name}");
    }
    assert_eq!(declared, PINNED, "tests/abi/codes.txt lists every code as `NUMBER NAME`; a listed line never changes");
}

#[test]
fn numbers_and_names_are_unique_and_every_number_stands_in_a_block_of_a_subject() {
    let mut numbers: Vec<_> = Code::ALL.iter().map(|(_, number)| *number).collect();
    assert!(numbers.is_sorted(), "codes stand in the order of their numbers");
    numbers.dedup();
    assert_eq!(numbers.len(), Code::ALL.len(), "two codes share a number");
    let names: BTreeSet<_> = Code::ALL.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), Code::ALL.len(), "two codes share a name");
    // 1 to 99 are outcomes of the C API; 599 stands for codes that host code brings along.
    assert!(numbers.iter().all(|number| (101..=999).contains(number) && *number != 599));
}

/// Codes of failures stand as texts in the sources of the wires and doubles: each has a row with cause and remedy.
#[test]
fn every_failure_code_of_the_wires_is_explained_in_the_guide() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = std::fs::read_to_string(root.join("../docs/models.md")).expect("the guide");
    let (mut folders, mut codes) = (vec![root.join("src/llm"), root.join("src/testing")], BTreeSet::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = std::fs::read_to_string(&path).expect("a source");
            let is_code = |text: &&str| {
                text.len() > 3
                    && text.starts_with(|c: char| c.is_ascii_uppercase())
                    && text.bytes().all(|b| b == b'_' || b.is_ascii_uppercase())
            };
            // Text between quotes; what is between two texts is no code, as it has spaces or punctuation.
            codes.extend(
                source.split('"').filter(is_code).filter(|text| !text.starts_with("CARGO_")).map(str::to_owned),
            );
        }
    }
    assert!(codes.len() >= 18, "{codes:?}");
    for code in codes {
        assert!(guide.contains(&format!("\n| `{code}` |")), "docs/models.md has no row for {code}");
    }
}
