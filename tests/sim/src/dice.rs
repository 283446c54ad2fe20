//! Where the simulator's decisions come from: nothing but the seed.
//!
//! A decision of host code (does this listener throw? does that tool wait?) is named by its site, its subject and a
//! count, and its randomness depends on the name and the seed only. So a script with stimuli taken out still makes most
//! of the decisions that the whole script made, which is what lets a failure be shrunk.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that depends on `seed` only.
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x9E37_79B9_7F4A_7C15)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is positive.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Which decisions deviate from the calm default; all of them unless a shrunk script names a few.
pub type Kept = Option<BTreeSet<String>>;

/// The decisions of one run.
pub struct Decisions {
    seed: u64,
    /// How wild the host is, in per cent of the nominal chances.
    wildness: u64,
    kept: Kept,
    counts: RefCell<BTreeMap<String, u64>>,
    taken: RefCell<BTreeSet<String>>,
    calm: Cell<bool>,
}

impl Decisions {
    /// The decisions of a seed.
    pub fn new(seed: u64, kept: Kept) -> Self {
        let mut rng = Rng::new(seed ^ 0x5117);
        let wildness = [25, 60, 100, 180][rng.below(4) as usize];
        Self { seed, wildness, kept, counts: RefCell::default(), taken: RefCell::default(), calm: Cell::new(false) }
    }

    /// From here on the host does the default everywhere.
    pub fn calm_down(&self) {
        self.calm.set(true);
    }

    /// Whether the host is calm by now.
    pub fn is_calm(&self) -> bool {
        self.calm.get()
    }

    /// The dice of the next decision at a site about a subject.
    pub fn dice(&self, site: &str, subject: &str) -> Dice<'_> {
        let key = format!("{site}:{subject}");
        let count = {
            let mut counts = self.counts.borrow_mut();
            let count = counts.entry(key.clone()).or_default();
            *count += 1;
            *count
        };
        let name = format!("{key}:{count}");
        let mut hash = self.seed;
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        let calm = self.calm.get() || self.kept.as_ref().is_some_and(|kept| !kept.contains(&name));
        Dice { decisions: self, name, rng: Rng::new(hash), calm }
    }

    /// The names of the decisions that were not the default.
    pub fn taken(&self) -> Vec<String> {
        self.taken.borrow().iter().cloned().collect()
    }
}

/// The dice of one decision.
pub struct Dice<'a> {
    decisions: &'a Decisions,
    name: String,
    rng: Rng,
    calm: bool,
}

impl Dice<'_> {
    /// True in about `percent` of a hundred cases; never in calm ones.
    pub fn chance(&mut self, percent: u64) -> bool {
        let hit = self.rng.below(10_000) < percent * self.decisions.wildness;
        self.note(hit)
    }

    /// As [`Dice::chance`], whatever the wildness of the run.
    pub fn steady(&mut self, percent: u64) -> bool {
        let hit = self.rng.percent(percent);
        self.note(hit)
    }

    fn note(&self, hit: bool) -> bool {
        let hit = hit && !self.calm;
        if hit {
            self.decisions.taken.borrow_mut().insert(self.name.clone());
        }
        hit
    }

    /// A number below `n`; 0 in calm cases.
    pub fn below(&mut self, n: u64) -> u64 {
        let value = self.rng.below(n);
        if self.calm { 0 } else { value }
    }

    /// A generator for what follows from the decision.
    pub fn rng(&mut self) -> Rng {
        Rng::new(self.rng.next())
    }
}
