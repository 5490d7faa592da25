//! Entry methods: named ways to initialise a process, from which the spawner chooses.

use std::any::{Any, type_name};
use std::borrow::Cow;
use std::fmt;

use crate::outcome::BoxError;

/// The default entry method.
pub(crate) const MAIN: &str = "main";

/// The argument of `init`: the entry method that the spawner chose, and its input.
///
/// To offer several methods, call [`method`](Self::method) for each of them, and then [`finish`](Self::finish). If the
/// chosen method is not among them, `finish` returns an error:
///
/// ```
/// use procession::{EntryArgs, InitResult};
///
/// struct Counter { total: u64 }
///
/// impl Counter {
///     fn init(&mut self, entry: EntryArgs) -> InitResult {
///         entry
///             .method("main", |(): ()| Ok(()))
///             .method("from", |total: u64| { self.total = total; Ok(()) })
///             .finish()
///     }
/// }
/// ```
pub struct EntryArgs {
    process: fn() -> &'static str,
    // `None` for `"main"` without an input, which is the usual case.
    point: Option<Box<EntryPoint>>,
    offered: Vec<EntryMethods>,
    outcome: Option<InitResult>,
}

/// The result of `init`. Any error can be returned with `?`.
pub type InitResult = Result<(), BoxError>;

/// The method and the input that the spawner gave.
pub(crate) struct EntryPoint {
    pub(crate) method: Cow<'static, str>,
    input: Box<dyn Any + Send>,
    /// The type of the input.
    type_name: &'static str,
}

impl EntryPoint {
    /// Makes an entry with an input that is in a box already.
    pub(crate) fn boxed(method: String, input: Box<dyn Any + Send>, type_name: &'static str) -> EntryPoint {
        EntryPoint { method: method.into(), input, type_name }
    }

    /// The input, and the name of its type.
    pub(crate) fn input(&self) -> (&dyn Any, &'static str) {
        (&*self.input, self.type_name)
    }
    pub(crate) fn new<I: Send + 'static>(method: impl Into<Cow<'static, str>>, input: I) -> EntryPoint {
        EntryPoint { method: method.into(), input: Box::new(input), type_name: type_name::<I>() }
    }
}

/// An entry method that a process offers, with the type of its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryMethods {
    /// The name of the method.
    pub method: &'static str,
    /// The type of the input.
    pub input: &'static str,
}

impl EntryArgs {
    #[inline]
    pub(crate) fn new(process: fn() -> &'static str, point: Option<Box<EntryPoint>>) -> EntryArgs {
        EntryArgs { process, point, offered: Vec::new(), outcome: None }
    }

    /// The name of the method that the spawner chose. It is `"main"` if the spawner chose none.
    #[inline]
    pub fn name(&self) -> &str {
        self.point.as_ref().map_or(MAIN, |point| &point.method)
    }

    /// Offers an entry method. If the spawner chose it, this calls `enter` with the input at once.
    #[inline]
    pub fn method<I: 'static>(mut self, name: &'static str, enter: impl FnOnce(I) -> InitResult) -> EntryArgs {
        if self.outcome.is_some() {
            return self;
        }
        if self.name() != name {
            self.offered.push(EntryMethods { method: name, input: type_name::<I>() });
            return self;
        }
        self.outcome = Some(match self.input::<I>() {
            Ok(value) => enter(value),
            Err(given) => Err(Box::new(EntryError::WrongInput {
                process: (self.process)(),
                method: name,
                given,
                expected: type_name::<I>(),
            })),
        });
        self
    }

    /// Offers only `"main"` without input.
    #[inline]
    pub(crate) fn main_only(self) -> InitResult {
        if self.point.is_none() {
            return Ok(());
        }
        self.method(MAIN, |(): ()| Ok(())).finish()
    }

    /// The input. If it has another type, the name of that type.
    #[inline]
    fn input<I: 'static>(&mut self) -> Result<I, &'static str> {
        match self.point.take() {
            None => {
                let none: &mut dyn Any = &mut Some(());
                none.downcast_mut::<Option<I>>().and_then(Option::take).ok_or("()")
            }
            Some(point) => point.input.downcast().map(|value| *value).map_err(|_| point.type_name),
        }
    }

    /// Returns the result of the chosen method.
    ///
    /// # Errors
    /// The error that the method returned. It is an [`EntryError`] if the chosen method is not offered, or takes an
    /// input of another type.
    #[inline]
    pub fn finish(self) -> InitResult {
        match self.outcome {
            Some(outcome) => outcome,
            None => Err(Box::new(EntryError::UnknownMethod {
                process: (self.process)(),
                asked: self.name().to_owned(),
                offered: self.offered,
            })),
        }
    }
}

impl fmt::Debug for EntryArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let input = self.point.as_ref().map_or("()", |point| point.type_name);
        f.debug_struct("EntryArgs").field("method", &self.name()).field("input", &input).finish()
    }
}

/// The spawner chose an entry method or an input that the process does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The process has no such method.
    #[error("{process} has no entry method {asked:?}; it offers {}", list(offered))]
    UnknownMethod {
        /// The type of the process.
        process: &'static str,
        /// The method that the spawner chose.
        asked: String,
        /// The methods that the process offers.
        offered: Vec<EntryMethods>,
    },
    /// The process has the method, but its input is of another type.
    #[error("entry method {method:?} of {process} takes an input of type {expected}, and was given {given}")]
    WrongInput {
        /// The type of the process.
        process: &'static str,
        /// The method.
        method: &'static str,
        /// The type of the given input.
        given: &'static str,
        /// The type of input that the method takes.
        expected: &'static str,
    },
}

fn list(offered: &[EntryMethods]) -> String {
    if offered.is_empty() {
        return String::from("none");
    }
    let each: Vec<String> = offered.iter().map(|one| format!("{:?} ({})", one.method, one.input)).collect();
    each.join(", ")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn enter(point: Option<EntryPoint>) -> Result<u64, EntryError> {
        let mut total = 0;
        EntryArgs::new(|| "Counter", point.map(Box::new))
            .method(MAIN, |(): ()| Ok(()))
            .method("from", |n: u64| {
                total = n;
                Ok(())
            })
            .finish()
            .map_err(|error| *error.downcast::<EntryError>().unwrap())?;
        Ok(total)
    }

    #[test]
    fn the_chosen_method_gets_its_typed_input() {
        assert_eq!(enter(None), Ok(0));
        assert_eq!(enter(Some(EntryPoint::new("from", 9_u64))), Ok(9));
    }

    #[test]
    fn an_entry_error_names_the_given_and_the_expected() {
        assert_eq!(
            enter(Some(EntryPoint::new("resume", ()))).unwrap_err().to_string(),
            "Counter has no entry method \"resume\"; it offers \"main\" (()), \"from\" (u64)"
        );
        assert_eq!(
            enter(Some(EntryPoint::new("from", "nine"))).unwrap_err().to_string(),
            "entry method \"from\" of Counter takes an input of type u64, and was given &str"
        );
    }
}
