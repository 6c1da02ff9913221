//! Tells the linker where this package's tests find HiGHS when they start, if the solver is built with it.

#[path = "../scripts/rpath.rs"]
mod rpath;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let package = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let checkout = std::path::Path::new(&package).parent();
    rpath::highs(checkout.expect("the package lies inside the checkout"));
}
