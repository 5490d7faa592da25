//! Artificial work. The suite has it as empty loops, or as calls of a random generator.

use std::hint::black_box;

/// The angle that the suite gives to the actors of both ForkJoin programs.
const ANGLE: f64 = 37.2;

/// The work of an actor of the ForkJoin programs for each message: the square of a sine.
pub(crate) fn square_of_sine() {
    let sine = black_box(ANGLE).sin();
    black_box(sine * sine);
}

/// Computes this many dependent rounds, of three shifts each. Empty loops would be optimised away.
pub(crate) fn rounds(count: u32) {
    let mut bits = u64::from(count) | 1 << 63;
    for _ in 0..count {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
    }
    black_box(bits);
}
