//! Arguments and attributes that mean nothing.

use procession::prelude::*;

struct Shop;

#[actor(messages_a_step = 0)]
impl Shop {}

struct Bank;

#[actor(messages_a_step = 2, messages_a_step = 9)]
impl Bank {}

struct Bar;

#[actor]
impl Bar {
    #[cfg_attr(unix, cfg(windows))]
    fn open(&mut self) {}

    #[cfg_attr(unix, allow(dead_code), fails)]
    fn close(&mut self) -> Result<(), procession::BoxError> {
        Ok(())
    }

    #[cfg_attr(unix, allow(dead_code))]
    fn serve(&mut self) {}
}

fn main() {}
