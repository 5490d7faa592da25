//! Names and visibilities that do not fit together.

use procession::prelude::*;

pub struct Shop;

#[actor]
impl Shop {
    pub fn buy(&mut self) {}

    fn helper(&mut self) {}

    pub fn sell_all(&mut self) {}

    pub fn sell__all(&mut self) {}

    pub fn join(&mut self) {}

    pub fn into(&self) -> u32 {
        5
    }

    pub fn to_owned(&mut self) {}

    pub fn open(&mut self) {}

    pub fn open(&mut self, _door: u32) {}

    #[cfg(unix)]
    pub fn close(&mut self) {}

    #[cfg(unix)]
    pub fn close(&mut self, _door: u32) {}
}

fn main() {}
