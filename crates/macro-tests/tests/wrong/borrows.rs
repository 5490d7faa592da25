//! Messages that borrow something.

use std::borrow::Cow;

use procession::prelude::*;

struct Shop;

#[actor]
impl Shop {
    fn name(&mut self, name: &str) {
        let _ = name;
    }

    fn all(&mut self, names: Vec<Cow<'_, str>>) {
        let _ = names;
    }

    fn show(&mut self, what: impl std::fmt::Display) {
        let _ = what;
    }

    fn owned(&mut self, name: &'static str, names: Vec<Cow<'static, str>>, act: Box<dyn Fn(&str) + Send>) {
        let _ = (name, names, act);
    }
}

fn main() {}
