//! Compiles the shim for streams, and tells the linker where this package's programs and tests find LibTorch and HiGHS
//! when they start.

#[path = "../scripts/rpath.rs"]
mod rpath;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let package = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let checkout = std::path::Path::new(&package).parent();
    let checkout = checkout.expect("the package lies inside the checkout");
    compile_shim();
    rpath::libtorch(checkout);
    // The scheduler's solver runs beside the served card, and building the whole workspace links HiGHS in with it.
    rpath::highs(checkout);
}

/// With the headers of the libtorch that `torch-sys` has found, as it compiles its own.
fn compile_shim() {
    const SHIM: &str = "shim/streams.cpp";
    println!("cargo:rerun-if-changed={SHIM}");
    let libraries = std::env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys says where libtorch lies");
    let headers = std::path::Path::new(&libraries).parent().expect("it lies in a folder");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .warnings(false)
        .define("_GLIBCXX_USE_CXX11_ABI", "1")
        .include(headers.join("include"))
        .include(headers.join("include/torch/csrc/api/include"))
        .file(SHIM)
        .compile("tenantry_streams");
}
