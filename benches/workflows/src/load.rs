//! The orders that each program carries out, and what it reports.

use std::collections::HashSet;
use std::error::Error;
use std::io::Read as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// After this time an order counts as hung.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// The input of an order.
#[derive(Serialize, Deserialize, Clone)]
pub(crate) struct Request {
    pub(crate) number: u64,
    pub(crate) item: String,
}

impl Request {
    pub(crate) fn new(number: u64) -> Request {
        Request { number, item: "x".repeat(100) }
    }

    pub(crate) fn id(&self) -> String {
        format!("order {}", self.number)
    }
}

/// The output of an order: the receipts of its three activities.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
pub(crate) struct Receipt {
    pub(crate) charge: String,
    pub(crate) reservation: String,
    pub(crate) parcel: String,
}

/// The activities of an order, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Activity {
    Charge,
    Reserve,
    Ship,
}

/// The activities that were carried out, with the numbers of their orders.
static DONE: Mutex<Option<HashSet<(u64, Activity)>>> = Mutex::new(None);

/// Carries out an activity, and returns its receipt. A second time is an error.
pub(crate) fn carry_out(number: u64, activity: Activity) -> Result<String, String> {
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !done.get_or_insert_default().insert((number, activity)) {
        return Err(format!("the activity {activity:?} of order {number} was carried out twice"));
    }
    Ok(receipt(number, activity))
}

fn receipt(number: u64, activity: Activity) -> String {
    format!("{activity:?} of order {number}")
}

/// Compares the output of an order with what it has to be.
pub(crate) fn check(number: u64, output: &Receipt) -> Outcome<()> {
    let [charge, reservation, parcel] =
        [Activity::Charge, Activity::Reserve, Activity::Ship].map(|activity| receipt(number, activity));
    let expected = Receipt { charge, reservation, parcel };
    if *output == expected { Ok(()) } else { Err(format!("order {number} has the output {output:?}").into()) }
}

/// Whether each of these orders was carried out, and none besides.
pub(crate) fn check_all(counts: Counts) -> Outcome<()> {
    let done = DONE.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, HashSet::len) as u64;
    let expected = 3 * (counts.singly + counts.together);
    if done == expected {
        Ok(())
    } else {
        Err(format!("{done} activities were carried out instead of {expected}").into())
    }
}

/// How many orders there are.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    /// One after the other.
    pub(crate) singly: u64,
    /// All at once.
    pub(crate) together: u64,
}

impl Counts {
    /// The numbers of the orders that are begun one after the other, and of the others.
    pub(crate) fn numbers(self) -> (std::ops::Range<u64>, std::ops::Range<u64>) {
        (0..self.singly, self.singly..self.singly + self.together)
    }

    /// As arguments of a program.
    pub(crate) fn arguments(self) -> [String; 2] {
        [self.singly.to_string(), self.together.to_string()]
    }
}

/// The figures of one program.
#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// From the beginning of an order until its output is known, when there is no other order. In nanoseconds.
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) orders_a_second: f64,
}

impl Measured {
    pub(crate) fn new(mut singly: Vec<Duration>, together: u64, took: Duration) -> Measured {
        singly.sort_unstable();
        let nanos = |place: usize| singly.get(place).map_or(0, |time| time.as_nanos() as u64);
        Measured {
            p50: nanos(singly.len() / 2),
            p99: nanos(singly.len() * 99 / 100),
            orders_a_second: together as f64 / took.as_secs_f64(),
        }
    }
}

/// Ends this program when the one that has started it ends.
pub(crate) fn end_with_the_other() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
}
