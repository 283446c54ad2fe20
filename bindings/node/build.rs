//! Lets the linker leave Node-API to the process that loads the library.

fn main() {
    napi_build::setup();
}
