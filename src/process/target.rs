//! Targets: the argument of every call that is about another process.

use self::sealed::{Named, Resolve};
use crate::pid::{Address, Pid};
use crate::primitives::Arc;

/// A value that names a process for a call.
///
/// These are targets:
///
/// - a [`Pid`];
/// - an [`Address`];
/// - a reference to a [`Handle`](crate::Handle);
/// - a name, as `&str`, `&String`, `Arc<str>` or `&Arc<str>`;
/// - a [`Member`] of a group.
///
/// Each call looks up a name or a group anew. In a step the look-up happens when the yield is written. A
/// name is found if the step has registered it before, or has given it to a child. A group that the step has joined is
/// not found yet: the step joins it when it has succeeded.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no target",
    note = "a target is a `Pid`, an `Address`, a `&Handle`, a name as `&str`, or a `Member` of a group"
)]
pub trait Target: Resolve {}

/// A [`Target`] to which messages of type `M` can be sent.
///
/// For an [`Address`] and a handle the compiler checks the type of the message. For a PID, a name and a [`Member`]
/// the type is checked when the message is delivered.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not take messages of type `{M}`",
    label = "takes messages of another type"
)]
pub trait Accepts<M>: Target {}

/// A [`Target`] that gives each call the next member of a group, in turn.
///
/// ```
/// use procession::Runtime;
/// use procession::names::Member;
///
/// let runtime = Runtime::builder().workers(1).start()?;
/// let error = runtime.send(Member("printers"), "a page").unwrap_err();
/// assert_eq!(error.to_string(), "the group \"printers\" has no members");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member<'a>(pub &'a str);

/// The error of a call for whose [`Target`] there is no process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NoSuchProcessError {
    /// The process has ended, or has never been in this runtime.
    #[error("no such process: {0} (it has ended, or never was in this runtime)")]
    Pid(Pid),
    /// No process has the name.
    #[error("no process has the name {0:?}")]
    Name(Arc<str>),
    /// The group has no members.
    #[error("the group {0:?} has no members")]
    Group(Arc<str>),
}

impl NoSuchProcessError {
    /// The name, or the group, if the target was one.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            NoSuchProcessError::Pid(_) => None,
            NoSuchProcessError::Name(name) | NoSuchProcessError::Group(name) => Some(name),
        }
    }
}

pub(crate) mod sealed {
    use super::Pid;

    /// A process, directly or by a name.
    #[derive(Debug)]
    pub enum Named<'a> {
        Process(Pid),
        Name(&'a str),
        Group(&'a str),
    }

    pub trait Resolve {
        fn named(&self) -> Named<'_>;
    }
}

impl Named<'_> {
    /// The process that is named, which may have ended. `holder` looks up names, and `next_member` groups.
    #[inline]
    pub(crate) fn find(
        self,
        holder: impl FnOnce(&str) -> Option<Pid>,
        next_member: impl FnOnce(&str) -> Option<Pid>,
    ) -> Result<Pid, NoSuchProcessError> {
        match self {
            Named::Process(pid) => Ok(pid),
            Named::Name(name) => holder(name).ok_or_else(|| NoSuchProcessError::Name(Arc::from(name))),
            Named::Group(group) => next_member(group).ok_or_else(|| NoSuchProcessError::Group(Arc::from(group))),
        }
    }
}

impl<M> Target for Address<M> {}
impl<M> Accepts<M> for Address<M> {}

impl<M> Resolve for Address<M> {
    #[inline]
    fn named(&self) -> Named<'_> {
        Named::Process(self.pid())
    }
}

macro_rules! targets {
    ($($target:ty: $named:expr),* $(,)?) => {$(
        impl Target for $target {}
        impl<M> Accepts<M> for $target {}

        impl Resolve for $target {
            #[inline]
            fn named(&self) -> Named<'_> {
                let named: fn(&Self) -> Named<'_> = $named;
                named(self)
            }
        }
    )*};
}

targets!(
    Pid: |pid| Named::Process(*pid),
    Member<'_>: |member| Named::Group(member.0),
    &str: |name| Named::Name(name),
    &String: |name| Named::Name(name),
    &Arc<str>: |name| Named::Name(name),
    Arc<str>: |name| Named::Name(name),
);
