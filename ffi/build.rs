//! Names the shared library as it is installed, with the major of the interface, and keeps it small.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |part: &str| std::env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default();
    if target("OS") == "linux" {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libturnwheel.so.1");
        // Equal functions are kept once: generic code repeats itself. The linker that comes with Rust, which is the default
        // on this machine only, can do it.
        if target("ARCH") == "x86_64" {
            println!("cargo::rustc-cdylib-link-arg=-Wl,--icf=all");
        }
    }
}
