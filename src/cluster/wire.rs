//! The types of messages that a node sends and takes.

use std::any::{Any, TypeId, type_name};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::guarded;
use super::output::{Output, TooLarge};
use super::remote::{MAX_BYTES, Remote, RemoteProcess};
use super::remote_spawn::{Begins, Described, described};
use super::scope::{Scope, within};
use super::shape::Shape;
use crate::outcome::BoxError;
use crate::sched::outbox::Outbox;

/// The longest name of a type, in bytes.
const MAX_NAME: usize = 255;

/// The most versions of a type that an error names.
const KNOWN: usize = 16;

/// The types that a node sends to others and takes from them. Only values of these types are ever decoded.
///
/// ```
/// use procession::cluster::Wire;
/// use procession::remote;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Deposit { account: u32, amount: u64 }
///
/// // The type as the other nodes still send it.
/// #[derive(Serialize, Deserialize)]
/// struct OldDeposit { account: u32, amount: u32 }
///
/// remote!(Deposit, "bank::Deposit", 2);
/// remote!(OldDeposit, "bank::Deposit", 1);
///
/// let wire = Wire::new()
///     .message::<Deposit>()
///     .accepts(|old: OldDeposit| Deposit { account: old.account, amount: old.amount.into() });
/// wire.check()?;
/// # Ok::<(), procession::cluster::WireError>(())
/// ```
#[derive(Default)]
pub struct Wire {
    kinds: Vec<Kind>,
    /// The kinds that are sent, by their types.
    sent: HashMap<TypeId, usize>,
    /// By sort, name and version.
    known: HashMap<(Sort, &'static str, u32), usize>,
    problem: Option<WireError>,
}

type Encode = fn(&dyn Any, &mut Output) -> Result<(), BoxError>;
/// Decodes a message, and puts it into an outbox. Returns its lane.
pub(crate) type Decode = Box<dyn Fn(&[u8], &mut Outbox) -> Result<u32, BoxError> + Send + Sync>;

/// How a value of another node is taken.
pub(crate) enum Takes {
    Message(Decode),
    /// Decodes the argument of a process.
    Process(fn(&[u8]) -> Result<Described, BoxError>),
}

/// The sorts of types. Types of different sorts may have one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Sort {
    Message,
    Process,
}

/// A type in the list for other nodes: its sort, name, version and shape.
type Listed<'a> = (Sort, Cow<'a, str>, u32, u64);

/// A type that is taken.
pub(crate) struct Kind {
    sort: Sort,
    name: &'static str,
    version: u32,
    shape: u64,
    pub(crate) type_name: &'static str,
    pub(crate) takes: Takes,
    /// `None` if the type is only taken.
    encode: Option<Encode>,
    limit: usize,
}

/// Why a [`Wire`] cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Two types have the same name and version.
    #[error("{one} and {other} are both {name:?} in version {version}: give one of them another name or version")]
    SameName {
        /// The name.
        name: &'static str,
        /// The version.
        version: u32,
        /// The type that was registered first.
        one: &'static str,
        /// The other type.
        other: &'static str,
    },
    /// The type can only be decoded from a format that describes itself.
    #[error(
        "{type_name} cannot travel: the encoding does not describe itself, and the type needs that. Remove `flatten`, \
         `untagged` and `tag` from the `serde` attributes of the type and of its fields"
    )]
    NeedsDescription {
        /// The type.
        type_name: &'static str,
    },
    /// The name is empty, or longer than 255 bytes.
    #[error("{type_name} has a name of {length} bytes: choose a name of 1 to {MAX_NAME} bytes")]
    NameLength {
        /// The type.
        type_name: &'static str,
        /// The length of its name.
        length: usize,
    },
    /// The limit of the type is above the limit of all messages.
    #[error("{type_name} allows messages of {limit} bytes: lower its limit to {MAX_BYTES} or less")]
    Limit {
        /// The type.
        type_name: &'static str,
        /// Its limit.
        limit: usize,
    },
}

impl Wire {
    /// Creates a `Wire` without types.
    pub fn new() -> Wire {
        Wire::default()
    }

    /// Adds a type of messages. They can be sent to other nodes, and are taken from them.
    pub fn message<M: Remote>(mut self) -> Wire {
        let decode = |bytes: &[u8], outbox: &mut Outbox| Ok(outbox.push(guarded::decode::<M>(bytes)?));
        let encode: Encode = |message, to| match message.downcast_ref::<M>() {
            Some(message) => to.encode(message),
            None => Err("a message has another type than its encoder".into()),
        };
        let name = (Sort::Message, M::NAME, M::VERSION);
        let at = self.add::<M>(name, M::MAX_BYTES, Takes::Message(Box::new(decode)), Some(encode));
        if let Some(at) = at {
            self.sent.insert(TypeId::of::<M>(), at);
        }
        self
    }

    /// Takes messages of an older or newer type of other nodes, and converts them. So nodes can be upgraded one after
    /// the other. If the conversion panics, the message is a dead letter.
    pub fn accepts<Other: Remote, M: Send + 'static>(
        mut self,
        convert: impl Fn(Other) -> M + Send + Sync + 'static,
    ) -> Wire {
        let decode = move |bytes: &[u8], outbox: &mut Outbox| {
            let message: M = convert(guarded::decode::<Other>(bytes)?);
            Ok(outbox.push(message))
        };
        let name = (Sort::Message, Other::NAME, Other::VERSION);
        self.add::<Other>(name, Other::MAX_BYTES, Takes::Message(Box::new(decode)), None);
        self
    }

    /// Adds a type of processes. Other nodes can spawn them here, and this node there, by
    /// [`StepOutput::spawn_on`](crate::StepOutput::spawn_on) and [`Cluster::spawn`](super::Cluster::spawn).
    ///
    /// The messages that the process takes from other nodes are registered by [`message`](Self::message).
    pub fn process<P: RemoteProcess>(mut self) -> Wire {
        let encode: Encode = |argument, to| match argument.downcast_ref::<P::Argument>() {
            Some(argument) => to.encode(argument),
            None => Err("an argument has another type than its encoder".into()),
        };
        let name = (Sort::Process, P::NAME, P::VERSION);
        let at = self.add::<P::Argument>(name, MAX_BYTES, Takes::Process(described::<P>), Some(encode));
        if let Some(at) = at {
            self.kinds[at].type_name = P::type_name();
            self.sent.insert(TypeId::of::<Begins<P>>(), at);
        }
        self
    }

    /// Checks that the wire can be used.
    ///
    /// # Errors
    ///
    /// The first invalid type of the wire.
    pub fn check(&self) -> Result<(), WireError> {
        self.problem.clone().map_or(Ok(()), Err)
    }

    /// Returns the place of the new kind, unless there is one already.
    fn add<T: DeserializeOwned>(
        &mut self,
        (sort, name, version): (Sort, &'static str, u32),
        limit: usize,
        takes: Takes,
        encode: Option<Encode>,
    ) -> Option<usize> {
        let type_name = type_name::<T>();
        let shape = within(&Rc::new(Scope::Probing), Shape::of::<T>);
        let taken = self.known.get(&(sort, name, version)).map(|at| self.kinds[*at].type_name);
        let problem = if let Some(one) = taken {
            Some(WireError::SameName { name, version, one, other: type_name })
        } else if shape.needs_description {
            Some(WireError::NeedsDescription { type_name })
        } else if name.is_empty() || name.len() > MAX_NAME {
            Some(WireError::NameLength { type_name, length: name.len() })
        } else if limit > MAX_BYTES {
            Some(WireError::Limit { type_name, limit })
        } else {
            None
        };
        if problem.is_some() {
            self.problem = self.problem.take().or(problem);
            return None;
        }
        let at = self.kinds.len();
        self.known.insert((sort, name, version), at);
        self.kinds.push(Kind { sort, name, version, shape: shape.hash, type_name, takes, encode, limit });
        Some(at)
    }

    /// The kind with this index in the list that other nodes have.
    pub(crate) fn kind(&self, index: u32) -> Option<&Kind> {
        self.kinds.get(index as usize)
    }

    /// The list of all kinds, for other nodes.
    pub(crate) fn list(&self) -> Result<Vec<u8>, BoxError> {
        let listed = |kind: &Kind| -> Listed<'_> { (kind.sort, kind.name.into(), kind.version, kind.shape) };
        let list: Vec<Listed<'_>> = self.kinds.iter().map(listed).collect();
        Ok(postcard::to_stdvec(&list)?)
    }

    /// The types that are sent here and that another node with this list takes.
    pub(crate) fn taken_by(&self, list: &[u8]) -> Result<Taken, BoxError> {
        let list: Vec<Listed<'_>> = guarded::decode(list)?;
        let find = |kind: &Kind| {
            let all =
                || list.iter().enumerate().filter(|(_, (sort, name, ..))| *sort == kind.sort && name == kind.name);
            let same = all().find(|(_, (.., version, _))| *version == kind.version);
            match same {
                Some((index, (.., shape))) if *shape == kind.shape => Ok(index as u32),
                Some(_) => Err(NotTaken::OtherShape),
                None => Err(NotTaken::OtherVersions(all().map(|(_, (.., version, _))| *version).take(KNOWN).collect())),
            }
        };
        let sent = self.sent.iter();
        Ok(Taken(sent.map(|(id, at)| (*id, find(&self.kinds[*at]))).collect()))
    }

    /// The type of a message for a node that takes these types.
    pub(crate) fn outgoing(&self, message: &dyn Any, taken: &Taken) -> Result<Outgoing, NotEncoded> {
        self.outgoing_as(message.type_id(), taken)
    }

    /// As `outgoing`, for a type that stands for this one.
    pub(crate) fn outgoing_as(&self, id: TypeId, taken: &Taken) -> Result<Outgoing, NotEncoded> {
        let kind = self.sent.get(&id).map(|at| &self.kinds[*at]).ok_or(NotEncoded::NotRemote)?;
        let encode = kind.encode.ok_or(NotEncoded::NotRemote)?;
        match taken.0.get(&id).ok_or(NotEncoded::NotRemote)? {
            Ok(index) => Ok(Outgoing { index: *index, type_name: kind.type_name, limit: kind.limit, encode }),
            Err(why) => {
                let (type_name, name, version, why) = (kind.type_name, kind.name, kind.version, why.clone());
                Err(NotEncoded::NotTaken { type_name, name, version, why })
            }
        }
    }
}

/// The type of a message that is sent.
pub(crate) struct Outgoing {
    /// Its index in the list of the other node.
    pub(crate) index: u32,
    pub(crate) type_name: &'static str,
    /// The most bytes of the message.
    pub(crate) limit: usize,
    encode: Encode,
}

impl Outgoing {
    /// Encodes the message.
    pub(crate) fn encode(&self, message: &dyn Any, to: &mut Output) -> Result<(), NotEncoded> {
        (self.encode)(message, to).map_err(NotEncoded::Failed)
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.kinds.iter().map(|kind| (kind.name, kind.version));
        f.debug_struct("Wire").field("kinds", &kinds.collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

/// The types that another node takes, with their indices there, or why it does not take them.
pub(crate) struct Taken(HashMap<TypeId, Result<u32, NotTaken>>);

impl Taken {
    /// Whether the other node takes messages of this type.
    pub(crate) fn takes(&self, id: TypeId) -> bool {
        matches!(self.0.get(&id), Some(Ok(_)))
    }
}

/// Why another node does not take a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// It knows the name in these versions.
    OtherVersions(Vec<u32>),
    /// It knows the name in this version, with other fields or variants.
    OtherShape,
}

impl fmt::Display for NotTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotTaken::OtherVersions(versions) if versions.is_empty() => f.write_str("it does not know the name"),
            NotTaken::OtherVersions(versions) => write!(f, "it knows the versions {versions:?}"),
            NotTaken::OtherShape => f.write_str(
                "its type of this version has other fields or variants: increase the version when you change a type",
            ),
        }
    }
}

/// Why a message was not encoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotEncoded {
    #[error("its type was not registered with `Wire::message`")]
    NotRemote,
    #[error("the other node does not take {type_name} as {name:?} in version {version}: {why}")]
    NotTaken { type_name: &'static str, name: &'static str, version: u32, why: NotTaken },
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    #[error("it cannot be encoded: {0}")]
    Failed(BoxError),
}
