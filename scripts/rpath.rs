//! Where our programs look for the native libraries when they start. Included by build scripts
//! (`#[path = "…/scripts/rpath.rs"] mod rpath;`) of the packages whose programs or tests use them.
//!
//! Written into each program, so that it runs from the checkout without `LD_LIBRARY_PATH`, and by the package itself
//! rather than by `build.rustflags`, which `RUSTFLAGS` would replace. What is written is a RUNPATH: `LD_LIBRARY_PATH`
//! still wins, so that on a machine with CUDA's PyTorch 2.11 the same program can use that one's libraries.

use std::path::Path;

/// LibTorch: the linked one, or the one of the user's own `LIBTORCH`.
#[allow(dead_code)]
pub fn libtorch(checkout: &Path) {
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    let linked = "third_party/libtorch/torch";
    match std::env::var_os("LIBTORCH") {
        Some(own) if Path::new(&own) != checkout.join(linked) => {
            rpath(&Path::new(&own).join("lib").display().to_string());
        }
        _ => inside(checkout, &format!("{linked}/lib")),
    }
}

/// The HiGHS solver.
#[allow(dead_code)]
pub fn highs(checkout: &Path) {
    inside(checkout, "third_party/highs/lib");
}

/// A folder of the checkout, seen from `target/PROFILE` (programs) and `target/PROFILE/deps` (tests), so that a
/// checkout can be moved; then by its full path, for a target folder elsewhere.
fn inside(checkout: &Path, folder: &str) {
    rpath(&format!("$ORIGIN/../../{folder}"));
    rpath(&format!("$ORIGIN/../../../{folder}"));
    rpath(&checkout.join(folder).display().to_string());
}

fn rpath(folder: &str) {
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
}
