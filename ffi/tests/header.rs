//! The committed header is the one that the crate generates, and names what the libraries export. `make header` blesses.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn generated() -> String {
    let crate_dir = env!("CARGO_MANIFEST_DIR");
    let mut config = cbindgen::Config::from_file(format!("{crate_dir}/cbindgen.toml")).expect("cbindgen.toml");
    config.header = Some(include_str!("../src/preamble.h").trim_end().to_owned());
    config.after_includes = Some(macros());
    let mut header = Vec::new();
    cbindgen::generate_with_config(crate_dir, config).expect("the crate parses").write(&mut header);
    String::from_utf8(header).expect("UTF-8")
}

/// What only C has: views of literals, and a name for each error.
fn macros() -> String {
    let mut text = String::from(
        "\n/** A view of a string literal. */\n#ifdef __cplusplus\n#define TW_STR(literal) (tw_str{\"\" literal, sizeof(literal) - 1})\n\
         #else\n#define TW_STR(literal) ((tw_str){\"\" literal, sizeof(literal) - 1})\n#endif\n\n\
         /* The errors. The hundred names the subject: 100 usage, 200 state, 300 log, 400 registry and scope, 500 host code,\n \
         * 600 model, 700 tool, 800 store, 900 bug. 599 stands for codes that host code brought along. */\n",
    );
    for line in include_str!("../../tests/abi/codes.txt").lines() {
        let (number, name) = line.split_once(' ').expect("NUMBER NAME");
        text.push_str(&format!("#define TW_E_{name} {number}\n"));
    }
    text.push_str("#define TW_E_OTHER 599\n");
    text
}

/// The functions that a header declares.
fn functions(header: &str) -> Vec<String> {
    let mut names: Vec<_> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '*', '/', '#']) && !line.starts_with("typedef") && line.contains('('))
        .filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next().map(str::to_owned))
        .filter(|name| name.starts_with("tw_"))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn compare(path: &Path, wanted: &str, how: &str) {
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, wanted).expect("written");
        return;
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let first = found.lines().zip(wanted.lines()).find(|(found, wanted)| found != wanted);
    assert!(found == wanted, "{} is stale ({how}); the first difference: {first:?}", path.display());
}

#[test]
fn the_committed_header_is_generated_from_the_crate() {
    compare(&root().join("include/turnwheel.h"), &generated(), "`make header` writes it");
}

#[test]
fn the_symbols_are_the_golden_list_and_a_typed_pointer_is_made_of_each() {
    let names = functions(&generated());
    assert!(names.len() > 100, "the header declares its functions: {names:?}");
    compare(
        &root().join("tests/abi/symbols.txt"),
        &(names.join("\n") + "\n"),
        "additions are blessed by `make header`",
    );
}

#[test]
fn status_names_are_the_pinned_codes() {
    let pinned = include_str!("../../tests/abi/codes.txt");
    for line in pinned.lines() {
        let (number, name) = line.split_once(' ').expect("NUMBER NAME");
        let found = turnwheel_c::basics::tw_status_name(number.parse().expect("a number"));
        // SAFETY: the function gives static text with a NUL.
        let found = unsafe { std::ffi::CStr::from_ptr(found) };
        assert_eq!(found.to_str(), Ok(name));
    }
}
