// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the C and assembly parts with frame pointers, so that every call chain is walkable.

use std::env;

fn main() {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let loop_source = match arch.as_str() {
        "aarch64" | "x86_64" => format!("asm/loop_{arch}.S"),
        other => panic!(
            "no counted loop for {other}: write asm/loop_{other}.S with the instruction counts \
             that src/lib.rs documents, and name it here"
        ),
    };
    for source in ["c/calls.c", "c/demo.c", "c/workloads.h", &loop_source] {
        println!("cargo:rerun-if-changed={source}");
    }
    c_build()
        .file(loop_source)
        .file("c/calls.c")
        .compile("workloads");

    // demo.c has its own main(): only src/bin/workload-c.rs links it.
    c_build()
        .cargo_metadata(false)
        .file("c/demo.c")
        .compile("workload_c_main");
}

fn c_build() -> cc::Build {
    let mut build = cc::Build::new();
    build
        .opt_level(2)
        .debug(true)
        .force_frame_pointer(true)
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        // A tail call would take its caller out of the chain.
        .flag("-fno-optimize-sibling-calls")
        .flag("-fno-ipa-icf");
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("aarch64") {
        build.flag("-mno-omit-leaf-frame-pointer");
    }
    build
}
