//! Nothing: the tests are in `tests/`. They are in a crate of their own, because they start the compiler.
