//! Tells the linker where the program finds LibTorch when it starts.

#[path = "scripts/rpath.rs"]
mod rpath;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_LIBTORCH").is_some() {
        let checkout = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
        rpath::libtorch(std::path::Path::new(&checkout));
    }
}
