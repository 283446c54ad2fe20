//! A first helping of seeds in every test run; `make sim` runs a hundred thousand.

use turnwheel_sim::run::{Part, run};

#[test]
fn two_thousand_seeds_break_no_invariant() {
    for seed in 0..2_000 {
        let outcome = run(seed, &Part::default(), false);
        assert!(outcome.violation.is_none(), "seed {seed}: {:?}; try `sim --seed {seed}`", outcome.violation);
    }
}

#[test]
fn a_seed_publishes_the_same_bytes_each_time() {
    for seed in 0..100 {
        let hashes = [0, 1].map(|_| run(seed, &Part::default(), false).hash);
        assert_eq!(hashes[0], hashes[1], "seed {seed}");
    }
}
