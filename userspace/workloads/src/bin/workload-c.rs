// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C program c/demo.c, built by cargo: `main` is the C one, and nothing here is Rust.
#![no_main]
