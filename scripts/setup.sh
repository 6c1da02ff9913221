#!/usr/bin/env bash
# Sets up what Tenantry needs beside Rust, on Debian or Ubuntu, x86-64. It says what it will install before it does; where
# all is there it does nothing. `--check` only reports.
#
#   system packages    a C++ compiler, pkg-config, libclang, make, Python with pip: by apt-get, as root or through sudo
#   LibTorch 2.11.0    the CPU part, cut from the wheels published on PyPI     -> third_party/libtorch
#   HiGHS 1.15.1       the solver's shared library, from a wheel likewise      -> third_party/highs
#
# The two libraries are kept in a cache of yours, so that all checkouts share one copy, and linked into the checkout.
# Variables:
#   TENANTRY_CACHE   that cache, instead of ${XDG_CACHE_HOME:-~/.cache}/tenantry
#   LIBTORCH         your own LibTorch 2.11.0 (a folder with `include` and `lib`): nothing is fetched for it
# A real folder at third_party/libtorch or third_party/highs, instead of a link, is used as it is.
set -euo pipefail
shopt -s inherit_errexit

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${TENANTRY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tenantry}

# The last number is ours: raise it when what is cut from the wheels changes.
libtorch_version=2.11.0
libtorch_folder=libtorch-$libtorch_version-cpu-1
highs_version=1.15.1
highs_folder=highs-$highs_version-1

# The wheels, by the SHA-256 that the index publishes: pip refuses anything else.
libtorch_wheels="\
torch==2.11.0 --hash=sha256:0f68f4ac6d95d12e896c3b7a912b5871619542ec54d3649cf48cc1edd4dd2756
nvidia-cuda-runtime==13.0.96 --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
nvidia-cuda-cupti==13.0.85 --hash=sha256:4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8"
highs_wheels="\
highsbox==1.15.1 --hash=sha256:17f30d23ef37488467732b45f141146f7c287826a576b4514ae39a8cc4068b28"

say() { printf '%s\n' "$*"; }
fail() { printf 'set-up: %s\n' "$*" >&2; exit 1; }

# ---- what is there -----------------------------------------------------------------------------------------------------

have() { command -v "$1" >/dev/null 2>&1; }

have_pip() { have python3 && python3 -m pip --version >/dev/null 2>&1; }

# libclang reads HiGHS's C header when its Rust bindings are built. The places are those where `bindgen` looks.
have_libclang() {
    local folder
    for folder in ${LIBCLANG_PATH:+"$LIBCLANG_PATH"} /usr/lib/llvm-*/lib /usr/lib/x86_64-linux-gnu /usr/lib64 /usr/lib /usr/local/lib; do
        if compgen -G "$folder/libclang.so*" >/dev/null || compgen -G "$folder/libclang-[0-9]*.so*" >/dev/null; then
            return 0
        fi
    done
    return 1
}

# The list of a folder's files with their sizes: what a finished cache folder is checked against.
list_files() { (cd "$1" && find . -type f ! -name .files -printf '%s %P\n' | LC_ALL=C sort); }

# A cache folder is whole if it holds exactly what it held when it was finished.
whole() { [ -f "$1/.files" ] && list_files "$1" | cmp -s - "$1/.files"; }

# A library is ready if the checkout has a folder of the user's for it, or a link to a whole folder of the cache.
ready() {
    local link=$checkout/third_party/$1 folder=$cache/$2
    if [ -d "$link" ] && [ ! -L "$link" ]; then return 0; fi
    [ "$(readlink "$link" 2>/dev/null)" = "$folder" ] && whole "$folder"
}

own_libtorch() { [ -n "${LIBTORCH:-}" ] && [ "$LIBTORCH" != "$checkout/third_party/libtorch/torch" ]; }

libtorch_ready() { own_libtorch || ready libtorch "$libtorch_folder"; }
highs_ready() { ready highs "$highs_folder"; }

# ---- checks that nothing can be installed for --------------------------------------------------------------------------

check_platform() {
    [ "$(uname -sm)" = "Linux x86_64" ] || fail "needs Linux on x86-64, and this is $(uname -sm).
  Without LibTorch and HiGHS, 'cargo build --release' still builds what simulates and reports."
}

check_rust() {
    local needed found
    needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$checkout/Cargo.toml" | head -n 1)
    have cargo || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
    have cargo || fail "Rust is missing: install $needed or newer with rustup (https://rustup.rs), then open a new shell."
    found=$(cd "$checkout" && cargo --version | cut -d' ' -f2)
    [ "$(printf '%s\n' "$needed" "$found" | sort -V | head -n 1)" = "$needed" ] ||
        fail "Rust $needed or newer is needed, and this is $found: run 'rustup update stable'."
}

check_own_libtorch() {
    own_libtorch || return 0
    local file version
    for file in lib/libtorch_cpu.so lib/libc10.so include/torch/csrc/api/include/torch/torch.h; do
        [ -e "$LIBTORCH/$file" ] || fail "LIBTORCH is set to $LIBTORCH, which has no $file.
  Set it to the folder of a LibTorch $libtorch_version, or unset it to use the one that this script fetches."
    done
    [ -f "$LIBTORCH/build-version" ] || return 0
    version=$(<"$LIBTORCH/build-version")
    [ "${version%%+*}" = "$libtorch_version" ] ||
        fail "LIBTORCH is set to $LIBTORCH, which is $version; the bindings need $libtorch_version."
}

# Where HiGHS is not found, its Rust bindings would turn to a source build; see .cargo/config.toml.
check_highs_is_found() {
    local folder
    folder=$(PKG_CONFIG_PATH=$checkout/third_party/highs/lib/pkgconfig \
        pkg-config --variable=libdir 'highs >= 1.5.0' 2>/dev/null) || folder=
    [ -e "$folder/libhighs.so" ] ||
        fail "pkg-config does not find HiGHS in third_party/highs.
  Remove third_party/highs and run this again; if that does not help, 'pkg-config --debug highs' says why."
}

# ---- the plan ----------------------------------------------------------------------------------------------------------

packages=()  # system packages to install
libraries=() # of libtorch, highs: those to fetch

# The libclang that the distribution prefers. Its small library package is enough, and only its name has a version in it.
libclang_package() {
    local version
    version=$(apt-cache depends libclang-dev 2>/dev/null | sed -n 's/.*libclang-\([0-9]*\)-dev.*/\1/p' | sed 1q) || true
    if [ -n "$version" ]; then say "libclang1-$version"; else say libclang-dev; fi
}

make_plan() {
    libtorch_ready || libraries+=(libtorch)
    highs_ready || libraries+=(highs)

    # Rust's own linker is the `cc` that comes with g++.
    if ! have c++ || ! have cc; then packages+=(g++); fi
    have make || packages+=(make)
    have pkg-config || packages+=(pkg-config)
    have_libclang || packages+=("$(libclang_package)")
    # Python and pip only fetch and unpack the wheels.
    if ((${#libraries[@]})) && ! have_pip; then packages+=(python3 python3-pip); fi
}

describe() {
    case $1 in
        libtorch) say "LibTorch $libtorch_version for CPU (downloads 545 MB, keeps 500 MB)" ;;
        highs) say "HiGHS $highs_version (downloads 10 MB, keeps 7 MB)" ;;
    esac
}

print_plan() {
    local name
    if ((${#packages[@]})); then say "  system packages: ${packages[*]}"; fi
    for name in "${libraries[@]}"; do
        if whole "$cache/$(folder_of "$name")"; then
            say "  a link third_party/$name to $cache/$(folder_of "$name")"
        else
            say "  $(describe "$name") into $cache"
        fi
    done
}

folder_of() { case $1 in libtorch) say "$libtorch_folder" ;; highs) say "$highs_folder" ;; esac; }

# ---- system packages ---------------------------------------------------------------------------------------------------

install_packages() {
    ((${#packages[@]})) || return 0
    have apt-get || fail "these programs are missing, under their Debian names: ${packages[*]}
  This system has no apt-get; install them its own way and run this again."
    local administrator=()
    if [ "$(id -u)" != 0 ]; then
        if have sudo && sudo -n true 2>/dev/null; then
            administrator=(sudo -n)
        else
            fail "system packages are missing, and installing them needs an administrator:
  sudo apt-get update && sudo apt-get install --no-install-recommends ${packages[*]}
  Then run this again: the rest needs no rights."
        fi
    fi
    # A list of packages that cannot be refreshed is not yet a failure: the old one may do.
    "${administrator[@]}" apt-get update -qq </dev/null || say "set-up: apt-get update failed; trying with what is known"
    # Only a refreshed list may know the name of libclang's small package.
    local position
    for position in "${!packages[@]}"; do
        if [ "${packages[$position]}" = libclang-dev ]; then packages[position]=$(libclang_package); fi
    done
    "${administrator[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${packages[@]}" </dev/null ||
        fail "could not install the system packages: ${packages[*]}
  Without a network, provide them from your distribution's medium or a local mirror, and run this again."
}

# ---- the two libraries -------------------------------------------------------------------------------------------------

partial= # the folder that is being filled

remove_partial() { if [ -n "$partial" ]; then rm -rf "$partial"; fi; }

need_space() { # megabytes
    local free
    free=$(df -Pm "$cache" | awk 'NR == 2 { print $4 }')
    ((free >= $1)) || fail "needs $1 MB of free space in $cache while it downloads, and there are $free MB.
  Make room, or set TENANTRY_CACHE to a folder elsewhere."
}

download() { # name, wheels, folder
    local log=$3/pip.log progress=off
    if [ -t 1 ]; then progress=on; fi
    printf '%s\n' "$2" >"$3/wheels.txt"
    # What pip would pick for this machine's Python does not matter, as no Python runs it: the platform is named, so that
    # the wheel is the same everywhere. Temporary files go where the space was checked.
    local local_wheels=()
    if [ -d "$cache/wheels" ]; then local_wheels=(--find-links "$cache/wheels"); fi
    if TMPDIR=$3 PIP_REQUIRE_VIRTUALENV=0 python3 -m pip download \
        --disable-pip-version-check --no-cache-dir --no-deps --only-binary=:all: --retries 2 --progress-bar "$progress" \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux2014_x86_64 \
        --python-version 3.12 --implementation cp --abi cp312 --abi none \
        "${local_wheels[@]}" --require-hashes --requirement "$3/wheels.txt" --dest "$3" 2>"$log" </dev/null | show_progress "$progress"; then
        return 0
    fi
    {
        say "set-up: could not download $1. pip says:"
        grep -E '^ *(ERROR|WARNING)' "$log" | cut -c1-200 | tail -n 3 || true
        say "Missing, from PyPI (as Linux x86-64 wheels for CPython 3.12):"
        printf '%s\n' "$2" | sed 's/ --hash=\(.*\)/   \1/; s/^/  /'
        say "If this machine has no network, do one of these on one that has, and run this again:"
        say "  * download these wheels there and put them into $cache/wheels"
        say "  * run scripts/setup.sh there, and copy its folder ~/.cache/tenantry/$(folder_of "$1") to $cache"
        if [ "$1" = libtorch ]; then say "  * set LIBTORCH to the folder of a LibTorch $libtorch_version that you have"; fi
    } >&2
    exit 1
}

# On a terminal pip draws a bar; elsewhere nothing of what it prints is worth a line.
show_progress() { if [ "$1" = on ]; then cat; else cat >/dev/null; fi; }

# Unpacks from all wheels of a folder what matches one of the patterns, without the given prefix.
unpack() { # wheels' folder, destination, prefix to drop, patterns...
    python3 - "$@" <<'PYTHON'
import fnmatch, glob, os, shutil, sys, zipfile

wheels, destination, prefix, *patterns = sys.argv[1:]


def unpack(archive):
    for name in archive.namelist():
        short = name[len(prefix):] if name.startswith(prefix) else ""
        if name.endswith("/") or not any(fnmatch.fnmatchcase(short, pattern) for pattern in patterns):
            continue
        path = os.path.join(destination, short)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with archive.open(name) as source, open(path, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)


try:
    for wheel in glob.glob(os.path.join(wheels, "*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            unpack(archive)
except (OSError, zipfile.BadZipFile) as error:
    sys.exit(f"set-up: could not unpack {wheel}: {error}")
PYTHON
}

# Whether the system can load a library, with all that it needs; if not, the loader's own words.
loads() {
    python3 - "$1" <<'PYTHON'
import ctypes, sys

try:
    ctypes.CDLL(sys.argv[1])
except OSError as error:
    sys.exit(f"set-up: this system cannot load what was downloaded: {error}")
PYTHON
}

build_libtorch() { # wheels' folder, destination
    # `libtorch_cpu.so` is linked against two small libraries of CUDA's and finds them by their place beside it.
    unpack "$1" "$2" "" 'torch/include/*' \
        torch/lib/libtorch_cpu.so torch/lib/libc10.so torch/lib/libgomp.so.1 \
        nvidia/cu13/lib/libcudart.so.13 nvidia/cu13/lib/libcupti.so.13
    # The bindings ask the linker for `torch`, whose real library would bring in all of CUDA.
    say 'INPUT(libtorch_cpu.so)' >"$2/torch/lib/libtorch.so"
    say "$libtorch_version+cu130" >"$2/torch/build-version"
    loads "$2/torch/lib/libtorch_cpu.so"
}

build_highs() { # wheels' folder, destination
    local dist=highsbox-$highs_version.data/purelib/highsbox/highs_dist/
    unpack "$1" "$2" "$dist" 'include/highs/*' lib/libhighs.so lib/pkgconfig/highs.pc share/doc/HIGHS/LICENSE.txt
    # The description names folders of the machine where it was built; name them by its own place instead.
    # shellcheck disable=SC2016 # `${…}` is for pkg-config
    sed -i -e 's|^prefix=.*|prefix=${pcfiledir}/../..|' -e 's|^libdir=.*|libdir=${prefix}/lib|' \
        -e 's|^includedir=.*|includedir=${prefix}/include/highs|' "$2/lib/pkgconfig/highs.pc"
    loads "$2/lib/libhighs.so"
}

# Fills a folder beside its final place and renames it, so that an interrupted run never leaves half of one.
fetch() { # name, wheels, megabytes
    local folder
    folder=$cache/$(folder_of "$1")
    if whole "$folder"; then return 0; fi
    need_space "$3"
    say "set-up: downloading $1"
    partial=$(mktemp -d "$cache/.partial-XXXXXX")
    mkdir "$partial/wheels" "$partial/built"
    download "$1" "$2" "$partial/wheels"
    "build_$1" "$partial/wheels" "$partial/built"
    list_files "$partial/built" >"$partial/files"
    mv "$partial/files" "$partial/built/.files"
    chmod 755 "$partial/built"
    rm -rf "$folder"
    mv -T "$partial/built" "$folder"
    remove_partial
    partial=
}

link() { # name
    mkdir -p "$checkout/third_party"
    ln -sfnT "$cache/$(folder_of "$1")" "$checkout/third_party/$1"
}

fetch_libraries() {
    ((${#libraries[@]})) || return 0
    mkdir -p "$cache" 2>/dev/null || true
    [ -w "$cache" ] ||
        fail "cannot write to the cache $cache; set TENANTRY_CACHE to a folder that you can write to."
    trap remove_partial EXIT
    trap 'exit 130' INT TERM HUP
    # One set-up at a time fills the cache; what an earlier one left when it was killed goes.
    exec 9>"$cache/.lock"
    flock -n 9 || { say "set-up: waiting for another set-up to finish"; flock 9; }
    rm -rf "$cache"/.partial-*
    local name
    for name in "${libraries[@]}"; do
        case $name in
            libtorch) fetch libtorch "$libtorch_wheels" 1800 ;;
            highs) fetch highs "$highs_wheels" 60 ;;
        esac
        link "$name"
    done
}

# ---- main --------------------------------------------------------------------------------------------------------------

case ${1:-} in
    '' | --check) ;;
    *) fail "usage: scripts/setup.sh [--check]" ;;
esac

check_platform
check_rust
check_own_libtorch
make_plan

if ((${#packages[@]} + ${#libraries[@]})); then
    if [ "${1:-}" = --check ]; then
        say "set-up: missing:"
        print_plan
        exit 1
    fi
    say "set-up: will install:"
    print_plan
    install_packages
    fetch_libraries
fi
check_highs_is_found
say "set-up: all there"
