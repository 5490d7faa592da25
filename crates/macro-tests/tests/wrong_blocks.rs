//! Blocks that `#[actor]` refuses. Each file of `wrong/` has one, and beside it are the errors of the compiler.
//!
//! To write the errors anew: `TRYBUILD=overwrite cargo test -p macro-tests`.

#[test]
fn wrong_blocks_are_refused_in_words_that_say_what_to_do() {
    let blocks = trybuild::TestCases::new();
    blocks.compile_fail("tests/wrong/*.rs");
}
