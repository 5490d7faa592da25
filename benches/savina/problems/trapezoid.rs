//! Trapezoidal: the area under a curve from 1 to 5, as the sum of narrow trapezoids. A hundred workers compute a
//! share each.

use super::Verdict;

pub(crate) const WORKERS: u64 = 100;

const LEFT: f64 = 1.0;
const RIGHT: f64 = 5.0;

/// The curve that the suite integrates. Its frequency rises to the right.
fn height(x: f64) -> f64 {
    (x.powi(3) - 1.0).sin() / (x + 1.0) * (1.0 + (2.0 * x).sqrt().exp()).sqrt()
}

/// A range of pieces, out of all pieces.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    first: u64,
    end: u64,
    of: u64,
}

impl Share {
    pub(crate) fn of(worker: u64, pieces: u64) -> Share {
        Share { first: pieces * worker / WORKERS, end: pieces * (worker + 1) / WORKERS, of: pieces }
    }

    pub(crate) fn area(self) -> f64 {
        let width = (RIGHT - LEFT) / self.of as f64;
        let at = |piece: u64| height(LEFT + width * piece as f64);
        if self.first == self.end {
            return 0.0;
        }
        let inner: f64 = (self.first + 1..self.end).map(at).sum();
        width * (inner + (at(self.first) + at(self.end)) / 2.0)
    }
}

/// Compares with Simpson's rule, which is far more exact on so smooth a curve: to 2e-12 here. The error of the
/// trapezoids is at most `(RIGHT - LEFT)^3 / (12 pieces^2)` times the greatest second derivative, which is below
/// 6,000. (It is about `(3 x^2)^2 = 5,625` times the amplitude, below 1, where the frequency is greatest.)
pub(crate) fn check(area: f64, pieces: u64) -> Verdict {
    let reference = simpson(100_000);
    let allowed = (RIGHT - LEFT).powi(3) / 12.0 * 6_000.0 / (pieces as f64).powi(2) + 1e-9;
    if (area - reference).abs() <= allowed {
        return Ok(());
    }
    Err(format!("the area: {area}, and it must be {reference}, give or take {allowed:e}"))
}

fn simpson(pieces: u64) -> f64 {
    let width = (RIGHT - LEFT) / pieces as f64;
    let sum: f64 = (0..pieces)
        .map(|piece| {
            let left = LEFT + width * piece as f64;
            height(left) + 4.0 * height(left + width / 2.0) + height(left + width)
        })
        .sum();
    sum * width / 6.0
}
