// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C program c/demo.c, built by cargo: `main` is the C one, and nothing here is Rust.
#![no_main]

// SAFETY: nothing is declared; the block makes the linker look for `main` in this library.
#[link(name = "workload_c_main", kind = "static")]
unsafe extern "C" {}
