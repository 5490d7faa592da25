//! Tests of shapes: types that differ in one thing, and types that contain themselves.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::*;

fn shape<T: DeserializeOwned>() -> u64 {
    Shape::of::<T>().hash
}

/// Two types of one name that differ in one thing.
macro_rules! pairs {
    ($($what:literal: { $($one:tt)* } { $($other:tt)* })*) => {
        /// Each pair with whether their shapes differ.
        fn pairs() -> Vec<(&'static str, bool)> {
            vec![$({
                mod one {
                    #[allow(unused_imports)]
                    use super::*;
                    #[allow(dead_code)]
                    #[derive(Deserialize)]
                    pub(super) $($one)*
                }
                mod other {
                    #[allow(unused_imports)]
                    use super::*;
                    #[allow(dead_code)]
                    #[derive(Deserialize)]
                    pub(super) $($other)*
                }
                ($what, shape::<one::T>() != shape::<other::T>())
            }),*]
        }
    };
}

#[allow(dead_code)]
#[derive(Deserialize)]
struct Inner {
    a: u8,
    b: u8,
}

#[allow(dead_code)]
#[derive(Deserialize)]
struct InnerWithC {
    a: u8,
    b: u8,
    c: u8,
}

#[allow(dead_code)]
#[derive(Deserialize)]
enum Choice {
    One,
    Two(u8),
}

#[allow(dead_code)]
#[derive(Deserialize)]
#[serde(rename = "Choice")]
enum OtherChoice {
    One,
    Two(u16),
}

pairs! {
    "a field at the end": { struct T { a: u8 } } { struct T { a: u8, b: u8 } }
    "a field with a default": { struct T { a: u8 } } { struct T { a: u8, #[serde(default)] b: u8 } }
    "a field at the beginning": { struct T { b: u8 } } { struct T { a: u8, b: u8 } }
    "a renamed field": { struct T { a: u8 } } { struct T { z: u8 } }
    "two fields in another order": { struct T { a: u8, b: u8 } } { struct T { b: u8, a: u8 } }
    "a wider number": { struct T { a: u8 } } { struct T { a: u16 } }
    "a number with a sign": { struct T { a: u32 } } { struct T { a: i32 } }
    "a fraction": { struct T { a: u32 } } { struct T { a: f32 } }
    "a text for a number": { struct T { a: u8 } } { struct T { a: String } }
    "an optional field": { struct T { a: u8 } } { struct T { a: Option<u8> } }
    "a list for a value": { struct T { a: u8 } } { struct T { a: Vec<u8> } }
    "the elements of a list": { struct T { a: Vec<u8> } } { struct T { a: Vec<u16> } }
    "the elements of an option": { struct T { a: Option<u8> } } { struct T { a: Option<u16> } }
    "the keys of a map": { struct T { a: BTreeMap<u8, u8> } } { struct T { a: BTreeMap<u16, u8> } }
    "the values of a map": { struct T { a: BTreeMap<u8, u8> } } { struct T { a: BTreeMap<u8, u16> } }
    "a list for a map": { struct T { a: BTreeMap<u8, u8> } } { struct T { a: Vec<(u8, u8)> } }
    "the length of an array": { struct T { a: [u8; 3] } } { struct T { a: [u8; 4] } }
    "the length of a tuple": { struct T(u8, u8); } { struct T(u8, u8, u8); }
    "a tuple for a struct": { struct T(u8, u8); } { struct T { a: u8, b: u8 } }
    "a variant at the end": { enum T { A, B } } { enum T { A, B, C } }
    "a renamed variant": { enum T { A, B } } { enum T { A, C } }
    "two variants in another order": { enum T { A, B } } { enum T { B, A } }
    "a variant with a value": { enum T { A, B } } { enum T { A, B(u8) } }
    "the value of the last variant": { enum T { A, B(u8) } } { enum T { A, B(u16) } }
    "a field of a variant": { enum T { A, B { a: u8 } } } { enum T { A, B { a: u8, b: u8 } } }
    "a variant of a list's elements": { struct T { a: Vec<Choice> } } { struct T { a: Vec<OtherChoice> } }
    "a nested enum of a late variant":
        { enum T { A, B(u8), C(Choice) } } { enum T { A, B(u8), C(OtherChoice) } }
    "a nested struct": { struct T { a: Inner } } { struct T { a: InnerWithC } }
    "an option of a nested struct": { struct T { a: Option<Inner> } } { struct T { a: Option<InnerWithC> } }
    "a set of a nested enum behind a refused number":
        { enum T { A(NonZeroU32), B(Option<Choice>) } } { enum T { A(NonZeroU32), B(Option<OtherChoice>) } }
    "a recursive enum": { enum T { A, B(Box<T>) } } { enum T { A, B(Box<T>), C(u8) } }
    "a recursive enum without an end in front":
        { enum T { B(Box<T>, Box<T>), C(u8) } } { enum T { B(Box<T>, Box<T>), C(u16) } }
    "a recursive struct":
        { struct T { next: Option<Box<T>>, a: u8 } } { struct T { next: Option<Box<T>>, a: u16 } }
    "a tree": { struct T { all: Vec<T>, a: u8 } } { struct T { all: Vec<T>, a: u16 } }
}

#[test]
fn two_types_that_differ_in_one_thing_have_two_shapes() {
    let pairs = pairs();
    assert!(pairs.len() >= 30);
    let equal: Vec<&str> = pairs.into_iter().filter(|(_, differ)| !differ).map(|(what, _)| what).collect();
    assert!(equal.is_empty(), "the shapes are equal: {equal:?}");
}

#[test]
fn the_shape_of_a_type_is_the_same_each_time_and_on_every_machine() {
    assert_eq!(shape::<Inner>(), shape::<Inner>());
    // Other processors and later versions must find the same, or they refuse each other's messages.
    assert_eq!(shape::<Inner>(), 13_540_250_064_826_009_372);
    assert_eq!(shape::<Vec<(Choice, Option<IpAddr>, Duration)>>(), 10_424_798_685_115_662_878);
}

/// Each of its 4 enums has 16 variants, and each variant is found.
#[allow(dead_code)]
#[derive(Deserialize)]
enum Wide<A> {
    V0(A),
    V1,
    V2,
    V3(u8),
    V4(A),
    V5,
    V6(String),
    V7,
    V8(Vec<A>),
    V9,
    V10,
    V11,
    V12,
    V13,
    V14(Box<Wide<A>>),
    V15(A),
}

#[test]
fn an_enum_deep_inside_is_seen_whole_though_all_have_one_name() {
    type Deep<A> = Wide<Wide<Wide<A>>>;
    assert_ne!(shape::<Deep<Choice>>(), shape::<Deep<OtherChoice>>());
    assert_ne!(shape::<(Wide<u8>, Wide<Choice>)>(), shape::<(Wide<u8>, Wide<OtherChoice>)>());
}

/// Two enums that contain each other.
#[allow(dead_code)]
#[derive(Deserialize)]
enum Left<A> {
    Right(Box<Right<A>>),
    Leaf,
}

#[allow(dead_code)]
#[derive(Deserialize)]
enum Right<A> {
    Left(Vec<Left<A>>),
    Both(Box<Right<A>>, Left<A>),
    Value(A),
}

/// It never ends. No value of it can be made.
#[allow(dead_code)]
#[derive(Deserialize)]
struct Endless {
    next: Box<Endless>,
}

#[allow(dead_code)]
#[derive(Deserialize)]
enum EndlessChoice {
    Next(Box<EndlessChoice>),
}

/// Types whose recursion goes through no field with a name.
#[allow(dead_code)]
#[derive(Deserialize)]
struct Nest(Vec<Nest>);

#[allow(dead_code)]
#[derive(Deserialize)]
struct Tree(HashMap<String, Tree>);

#[allow(dead_code)]
#[derive(Deserialize)]
struct List<A>(Option<Box<List<A>>>, A);

#[allow(dead_code)]
#[derive(Deserialize)]
#[serde(transparent)]
struct Hollow {
    next: Option<Box<Hollow>>,
}

#[allow(dead_code)]
#[derive(Deserialize)]
struct Bottomless(Box<Bottomless>);

/// Does not expect the value that it is given.
struct Picky;

impl<'a> Deserialize<'a> for Picky {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Picky, D::Error> {
        assert_ne!(u8::deserialize(from)?, 1, "on purpose: a value that is not expected");
        Ok(Picky)
    }
}

#[test]
fn a_type_that_panics_at_a_value_has_a_shape() {
    assert_ne!(shape::<(u8, Picky)>(), shape::<(u16, Picky)>());
}

#[test]
fn types_that_contain_themselves_have_a_shape() {
    let all = [shape::<Nest>(), shape::<Tree>(), shape::<Hollow>(), shape::<Bottomless>(), shape::<List<u8>>()];
    assert!(all.iter().enumerate().all(|(at, one)| !all[..at].contains(one)));
    assert_ne!(shape::<List<Choice>>(), shape::<List<OtherChoice>>());
    assert_ne!(shape::<Left<Choice>>(), shape::<Left<OtherChoice>>());
    assert_ne!(shape::<Endless>(), shape::<EndlessChoice>());
}

#[allow(dead_code)]
#[derive(Deserialize)]
#[serde(untagged)]
enum Untagged {
    A(u8),
    B(String),
}

#[allow(dead_code)]
#[derive(Deserialize)]
struct Flat {
    #[serde(flatten)]
    inner: Inner,
}

#[allow(dead_code)]
#[derive(Deserialize)]
#[serde(tag = "kind")]
enum Tagged {
    A { a: u8 },
}

#[allow(dead_code)]
#[derive(Deserialize)]
enum Hidden {
    A,
    B(Option<Untagged>),
}

#[test]
fn a_type_that_needs_a_description_is_seen() {
    let needs = [
        Shape::of::<Untagged>(),
        Shape::of::<Flat>(),
        Shape::of::<Tagged>(),
        Shape::of::<Hidden>(),
        Shape::of::<Vec<Untagged>>(),
    ];
    assert!(needs.iter().all(|shape| shape.needs_description), "{needs:?}");
    let common = [
        Shape::of::<(Inner, Choice, String, IpAddr, Duration)>(),
        Shape::of::<HashMap<String, BTreeSet<u64>>>(),
        Shape::of::<Left<Choice>>(),
        Shape::of::<Option<Box<[char]>>>(),
    ];
    assert!(common.iter().all(|shape| !shape.needs_description), "{common:?}");
}
