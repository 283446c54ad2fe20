//! The operating system's own files under failures: a test plays itself again in a process whose writes, syncs and reads
//! below one directory fail on demand (`failing_disk.c`). What is tested are SQLite's and our own system calls.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// No space on the device.
pub const ENOSPC: i32 = 28;
/// An error of the device.
pub const EIO: i32 = 5;

/// The directory whose files fail. Each test process has one.
#[derive(Clone)]
pub struct Disk {
    root: PathBuf,
    plan: PathBuf,
}

impl Disk {
    /// Plays the test in a process with a failing disk; `None` in the process that only started that one.
    pub fn of_test(name: &str) -> Option<Self> {
        if let (Some(root), Some(plan)) = (std::env::var_os("TURNWHEEL_DISK"), std::env::var_os("TURNWHEEL_DISK_PLAN"))
        {
            return Some(Self { root: root.into(), plan: plan.into() });
        }
        let directory = tempfile::tempdir().expect("a directory");
        let library = directory.path().join("failing_disk.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/failing_disk.c");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let built = Command::new(compiler).args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
        assert!(built.expect("a C compiler").success());
        let root = directory.path().join("disk");
        fs::create_dir(&root).expect("a directory");
        let output = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", name, "--nocapture", "--test-threads=1"])
            .env("LD_PRELOAD", library)
            .env("TURNWHEEL_DISK", root.canonicalize().expect("a path"))
            .env("TURNWHEEL_DISK_PLAN", directory.path().join("plan"))
            .output()
            .expect("a process");
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{said}");
        assert!(said.contains("1 passed"), "{said}");
        None
    }

    /// A directory on the disk.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// From now on writes put so many more bytes down, and then fail.
    pub fn fail_writes(&self, errno: i32, after: usize) {
        self.set_plan(&format!("write {errno} {after}"));
    }

    /// From now on no sync succeeds. What was written is in the files.
    pub fn fail_syncs(&self, errno: i32) {
        self.set_plan(&format!("sync {errno} 0"));
    }

    /// From now on nothing can be read.
    pub fn fail_reads(&self, errno: i32) {
        self.set_plan(&format!("read {errno} 0"));
    }

    /// The disk works again.
    pub fn mend(&self) {
        self.set_plan("");
    }

    /// How many system calls have failed.
    pub fn failures(&self) -> usize {
        fs::read(self.plan.with_extension("failures")).map_or(0, |failures| failures.len())
    }

    /// A plan is seen whole or not at all.
    fn set_plan(&self, plan: &str) {
        let next = self.plan.with_extension("next");
        fs::write(&next, plan).expect("a plan");
        fs::rename(next, &self.plan).expect("the plan");
    }
}
