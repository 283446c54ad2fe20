//! The C tests, compiled by the system's compiler against the committed header and the library of this build.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// The folder of the library that was built with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let deps = test.parent().expect("a folder");
    let found = [deps, deps.parent().expect("the profile's folder")]
        .into_iter()
        .find(|folder| folder.join("libturnwheel_c.so").exists());
    found.expect("cargo built the shared library beside its tests").to_owned()
}

fn compile(source: &str, into: &Path) -> PathBuf {
    let (root, library) = (root(), library());
    let program = into.join(Path::new(source).file_stem().expect("a name"));
    let status = Command::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"])
        .arg(format!("-I{}", root.join("include").display()))
        .arg(root.join(source))
        .arg(library.join("libturnwheel_c.so"))
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .arg("-o")
        .arg(&program)
        .status()
        .expect("a C compiler");
    assert!(status.success(), "{source} compiles without a warning");
    program
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// The name that the library has when it is installed, in reach of the linker.
fn run(program: &Path) {
    run_with(program, &[]);
}

/// As `run`, with an empty folder to store sessions in.
fn run_in_a_folder(program: &Path) {
    let folder = program.with_extension("stores");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    run_with(program, &[folder.as_path()]);
}

fn run_with(program: &Path, arguments: &[&Path]) {
    let lib = program.parent().expect("a folder").join("lib");
    std::fs::create_dir_all(&lib).expect("a folder");
    let named = lib.join("libturnwheel.so.1");
    let _ = std::fs::remove_file(&named);
    std::os::unix::fs::symlink(library().join("libturnwheel_c.so"), &named).expect("a link");
    let output = Command::new(program).args(arguments).env("LD_LIBRARY_PATH", &lib).output().expect("it runs");
    let (said, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.trim_end() == "ok", "{}: {said}{failed}", program.display());
}

#[test]
fn the_interface_does_what_it_says_and_refuses_what_is_wrong() {
    run(&compile("tests/c/abi.c", &scratch("abi")));
}

#[test]
fn a_session_is_shown_as_a_page_and_as_text() {
    run(&compile("tests/c/view.c", &scratch("view")));
}

#[test]
fn stores_routes_types_and_threads_are_reached_from_c() {
    run_in_a_folder(&compile("tests/c/whole.c", &scratch("whole")));
}

#[test]
fn reported_faults_of_bindings_do_not_happen() {
    run_in_a_folder(&compile("tests/c/cases.c", &scratch("cases")));
}

#[test]
fn a_process_killed_inside_a_tool_is_continued_by_another() {
    run_in_a_folder(&compile("tests/c/killed.c", &scratch("killed")));
}

#[test]
fn every_function_fits_a_pointer_of_its_type() {
    let pointers = root().join("tests/abi/pointers.c");
    for (compiler, flags) in [("cc", "-std=c11"), ("c++", "-xc++")] {
        let status = Command::new(compiler)
            .args([flags, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wno-unused-variable", "-c"])
            .arg(format!("-I{}", root().join("include").display()))
            .arg(&pointers)
            .args(["-o", "/dev/null"])
            .status()
            .expect("a compiler");
        assert!(status.success(), "{compiler} {flags}");
    }
}

#[test]
fn random_calls_give_defined_statuses_and_leave_nothing_over() {
    run(&compile("tests/c/fuzz.c", &scratch("fuzz")));
}

#[test]
fn the_header_compiles_alone_as_c_and_cpp() {
    let into = scratch("alone");
    for (compiler, standard, name) in [("cc", "-std=c11", "alone.c"), ("c++", "-std=c++17", "alone.cpp")] {
        let source = into.join(name);
        std::fs::write(&source, "#include \"turnwheel.h\"\n").expect("written");
        let status = Command::new(compiler)
            .args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c"])
            .arg(format!("-I{}", root().join("include").display()))
            .arg(&source)
            .args(["-o", "/dev/null"])
            .status()
            .expect("a compiler");
        assert!(status.success(), "{compiler} {standard}");
    }
}

#[test]
fn the_library_exports_the_golden_list_and_nothing_else() {
    let library = library().join("libturnwheel_c.so");
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().expect("nm");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let mut names: Vec<_> = text.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    names.sort_unstable();
    let golden: Vec<_> = include_str!("../../tests/abi/symbols.txt").lines().collect();
    assert_eq!(names, golden);
}
