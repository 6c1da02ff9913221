//! Tells the linker where this package's programs and tests find LibTorch and HiGHS when they start.

#[path = "../scripts/rpath.rs"]
mod rpath;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let package = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let checkout = std::path::Path::new(&package).parent();
    let checkout = checkout.expect("the package lies inside the checkout");
    rpath::libtorch(checkout);
    // The scheduler's solver runs beside the served card, and building the whole workspace links HiGHS in with it.
    rpath::highs(checkout);
}
