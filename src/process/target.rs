//! Targets: the values with which calls name a process.

use self::sealed::{Named, Resolve};
pub(crate) use super::no_such_process::NoSuchProcessError;
use super::recipient::Recipient;
use crate::pid::{Address, Pid};
use crate::primitives::Arc;

/// A value that names a process for a call.
///
/// These are targets:
///
/// - a [`Pid`];
/// - an [`Address`];
/// - a reference to a [`Handle`](crate::Handle), a [`ProcessRef`](crate::ProcessRef) or a [`Recipient`];
/// - a name, as `&str`, `String`, `&String`, `Arc<str>` or `&Arc<str>`;
/// - a [`Member`] of a group;
/// - with the feature `cluster`, a `cluster::Shared` name.
///
/// Each call looks up a name or a group again. In a step, the look-up happens when the yield is written. The look-up
/// finds a name that the same step has registered, or has given to a child. It does not find a membership that the
/// same step has begun, because the process joins the group when the step has succeeded.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no target",
    note = "a target is a `Pid`, an `Address`, a `&Handle`, a `&Recipient`, a name as a string, or a `Member`"
)]
pub trait Target: Resolve {}

/// A [`Target`] to which messages of type `M` can be sent.
///
/// For an [`Address`], a handle and a [`Recipient`], the compiler checks the type of the message. For a PID, a name and
/// a [`Member`], the type is checked when the message is delivered.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not take messages of type `{M}`",
    label = "takes messages of another type"
)]
pub trait Accepts<M>: Target {
    /// The recipient that converts the messages, if the target is one.
    #[doc(hidden)]
    #[inline]
    fn recipient(&self) -> Option<&Recipient<M>> {
        None
    }
}

/// A [`Target`]: one member of this group. Successive calls take the members in turn.
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

/// A [`Target`]: the process that has this shared name, on any node of the cluster, as this node sees it.
///
/// A process gets such a name by [`Cluster::claim`](crate::cluster::Cluster::claim).
///
/// ```
/// use procession::Runtime;
/// use procession::cluster::Shared;
///
/// let runtime = Runtime::builder().workers(1).start()?;
/// let error = runtime.send(Shared("ledger"), "a line").unwrap_err();
/// assert_eq!(error.to_string(), "no process has the shared name \"ledger\"");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "cluster")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shared<'a>(pub &'a str);

pub(crate) mod sealed {
    use super::Pid;

    /// A target: a PID, a name or a group.
    #[derive(Debug)]
    pub enum Named<'a> {
        Process(Pid),
        Name(&'a str),
        Group(&'a str),
        #[cfg(feature = "cluster")]
        Shared(&'a str),
    }

    pub trait Resolve {
        fn named(&self) -> Named<'_>;
    }
}

/// A target that owns its name.
#[derive(Clone, Debug)]
pub(crate) enum OwnedTarget {
    Process(Pid),
    Name(Arc<str>),
    Group(Arc<str>),
    #[cfg(feature = "cluster")]
    Shared(Arc<str>),
}

impl OwnedTarget {
    pub(crate) fn named(&self) -> Named<'_> {
        match self {
            OwnedTarget::Process(pid) => Named::Process(*pid),
            OwnedTarget::Name(name) => Named::Name(name),
            OwnedTarget::Group(group) => Named::Group(group),
            #[cfg(feature = "cluster")]
            OwnedTarget::Shared(name) => Named::Shared(name),
        }
    }
}

impl Named<'_> {
    pub(crate) fn into_owned(self) -> OwnedTarget {
        match self {
            Named::Process(pid) => OwnedTarget::Process(pid),
            Named::Name(name) => OwnedTarget::Name(Arc::from(name)),
            Named::Group(group) => OwnedTarget::Group(Arc::from(group)),
            #[cfg(feature = "cluster")]
            Named::Shared(name) => OwnedTarget::Shared(Arc::from(name)),
        }
    }

    /// The process at the target. It may have ended. `holder` looks up names, `next_member` groups, and `shared`
    /// the shared names of a cluster.
    #[inline]
    pub(crate) fn find(
        self,
        holder: impl FnOnce(&str) -> Option<Pid>,
        next_member: impl FnOnce(&str) -> Option<Pid>,
        shared: impl FnOnce(&str) -> Option<Pid>,
    ) -> Result<Pid, NoSuchProcessError> {
        #[cfg(not(feature = "cluster"))]
        let _ = shared;
        match self {
            Named::Process(pid) => Ok(pid),
            Named::Name(name) => holder(name).ok_or_else(|| NoSuchProcessError::Name(Arc::from(name))),
            Named::Group(group) => next_member(group).ok_or_else(|| NoSuchProcessError::Group(Arc::from(group))),
            #[cfg(feature = "cluster")]
            Named::Shared(name) => shared(name).ok_or_else(|| NoSuchProcessError::SharedName(Arc::from(name))),
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

impl<T> Target for &Recipient<T> {}

impl<T> Accepts<T> for &Recipient<T> {
    #[inline]
    fn recipient(&self) -> Option<&Recipient<T>> {
        Some(self)
    }
}

impl<T> Resolve for &Recipient<T> {
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
    String: |name| Named::Name(name),
    &Arc<str>: |name| Named::Name(name),
    Arc<str>: |name| Named::Name(name),
);

#[cfg(feature = "cluster")]
targets!(Shared<'_>: |shared| Named::Shared(shared.0));
