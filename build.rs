//! Tells the linker where the program finds LibTorch and HiGHS when it starts.

#[path = "scripts/rpath.rs"]
mod rpath;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let checkout = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let checkout = std::path::Path::new(&checkout);
    if std::env::var_os("CARGO_FEATURE_LIBTORCH").is_some() {
        rpath::libtorch(checkout);
    }
    // Building the whole workspace links it in even where this package does not ask for it.
    rpath::highs(checkout);
}
