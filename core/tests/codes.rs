//! The error codes are a promise to every host: names and numbers never change, and new ones are added to the list by
//! hand (STYLE §4).

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
    let names: std::collections::BTreeSet<_> = Code::ALL.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), Code::ALL.len(), "two codes share a name");
    // 1 to 99 are outcomes of the C API; 599 stands for codes that host code brings along.
    assert!(numbers.iter().all(|number| (101..=999).contains(number) && *number != 599));
}
