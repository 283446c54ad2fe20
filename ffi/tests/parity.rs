//! The C column of the parity table names functions that exist, has a row for every public thing, and gives a reason
//! where there is none.

use std::collections::BTreeSet;

fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains('`') && !line.starts_with("| what "))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
}

#[test]
fn every_row_names_a_function_or_a_reason() {
    let symbols: BTreeSet<_> = include_str!("../../tests/abi/symbols.txt").lines().collect();
    for row in rows(include_str!("../../tests/parity/c.md")) {
        let (what, function, reason) = (row[0], row[2].trim_matches('`'), row[3]);
        assert!(symbols.contains(function) || (function.is_empty() && !reason.is_empty()), "{what}: {function:?}");
    }
}

#[test]
fn every_public_thing_has_a_row() {
    let here: BTreeSet<_> = rows(include_str!("../../tests/parity/c.md")).map(|row| row[0].to_owned()).collect();
    for row in rows(include_str!("../../tests/parity/hosts.md")) {
        assert!(here.contains(row[0]), "tests/parity/c.md has no row for {:?}", row[0]);
    }
}
