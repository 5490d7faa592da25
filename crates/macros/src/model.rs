//! The meaning of each method of the block: a message, or a callback.

use proc_macro2::{Ident, Span};
use quote::format_ident;
use syn::ext::IdentExt as _;
use syn::{Attribute, Error, GenericArgument, GenericParam, Path, PathArguments, Result, ReturnType, Type, Visibility};

use super::parse::{Arguments, Block, Input, Method, note, tokens};

/// The block as an actor.
pub(crate) struct Actor<'a> {
    /// The name of the enum of messages.
    pub(crate) message: Ident,
    /// The name of the trait of calls.
    pub(crate) calls: Ident,
    /// The visibility of both.
    pub(crate) visibility: Visibility,
    pub(crate) messages: Vec<Message<'a>>,
    pub(crate) callbacks: Vec<Callback<'a>>,
}

/// A method that handles a message.
pub(crate) struct Message<'a> {
    pub(crate) method: &'a Method,
    pub(crate) variant: Ident,
    pub(crate) parameters: Vec<Parameter<'a>>,
    /// The type of the value that it returns as an answer.
    pub(crate) answer: Option<&'a Type>,
}

/// A method that handles another event.
pub(crate) struct Callback<'a> {
    pub(crate) method: &'a Method,
    pub(crate) event: &'static EventKind,
    pub(crate) parameters: Vec<Parameter<'a>>,
    /// The output, of `finish` alone.
    pub(crate) output: Option<&'a Type>,
}

/// A parameter other than `self`.
pub(crate) enum Parameter<'a> {
    /// A field of the message, or the event of a callback.
    Value(&'a Input),
    /// A field of the message: the right to answer later, and the type of the answer.
    Reply(&'a Input, &'a Type),
    /// `out: &mut Actions<Self>`
    Actions,
}

/// An event that `#[on(..)]` can name.
pub(crate) struct EventKind {
    pub(crate) name: &'static str,
    /// The type of its parameter in the crate `procession`, if it has one.
    pub(crate) carries: Option<&'static [&'static str]>,
}

const EVENTS: [EventKind; 7] = [
    EventKind { name: "start", carries: None },
    EventKind { name: "stop", carries: Some(&["command", "CancelRequest"]) },
    EventKind { name: "down", carries: Some(&["Down"]) },
    EventKind { name: "exit", carries: Some(&["exit", "ExitSignal"]) },
    EventKind { name: "group", carries: Some(&["names", "GroupEvent"]) },
    EventKind { name: "other", carries: Some(&["Event"]) },
    EventKind { name: "finish", carries: None },
];

/// Methods of a handle and of a `ProcessRef`, with those of traits that are always in scope. A call with such a name
/// would be hidden by the method, or the compiler could not decide between the two.
pub(crate) const HIDDEN: [&str; 28] = [
    "address",
    "ask",
    "cancel",
    "cancel_timeout",
    "clone",
    "exit",
    "info",
    "into",
    "into_future",
    "is_alive",
    "is_finished",
    "join",
    "join_group",
    "join_timeout",
    "leave_group",
    "map",
    "pid",
    "poll",
    "process_ref",
    "register",
    "send",
    "send_timeout",
    "shutdown_node",
    "state",
    "terminate",
    "to_owned",
    "try_into",
    "watch",
];

/// The events that `#[on(..)]` can name, as a list.
pub(crate) fn events() -> String {
    EVENTS.map(|event| format!("`{}`", event.name)).join(", ")
}

impl<'a> Actor<'a> {
    pub(crate) fn of(block: &'a Block) -> Result<Actor<'a>> {
        let name = name_of(&block.self_type)?;
        if let Some(GenericParam::Lifetime(lifetime)) =
            block.generics.params.iter().find(|one| matches!(one, GenericParam::Lifetime(_)))
        {
            return Err(Error::new_spanned(lifetime, "an actor borrows nothing: it lives as long as its process"));
        }
        let (mut messages, mut callbacks, mut errors) = (Vec::new(), Vec::new(), block.errors.clone());
        for method in &block.methods {
            match &method.on {
                Some(on) => match Callback::of(method, on, &callbacks) {
                    Ok(callback) => callbacks.push(callback),
                    Err(error) => note(&mut errors, error),
                },
                None => match Message::of(method, &messages) {
                    Ok(message) => messages.push(message),
                    Err(error) => note(&mut errors, error),
                },
            }
        }
        if let Some(errors) = errors {
            return Err(errors);
        }
        let visibility = messages.first().map_or(Visibility::Inherited, |first| first.method.visibility.clone());
        Ok(Actor {
            message: format_ident!("{name}Message", span = name.span()),
            calls: format_ident!("{name}Calls", span = name.span()),
            visibility,
            messages,
            callbacks,
        })
    }

    /// Refuses to derive `Clone` for messages with a `Reply`. The compiler's error would not say what to do.
    pub(crate) fn refuse_clones(&self, arguments: &Arguments) -> Result<()> {
        let is_clone = |path: &&Path| path.segments.last().is_some_and(|last| last.ident == "Clone");
        let Some(clone) = arguments.derives.iter().find(is_clone) else { return Ok(()) };
        // A condition may leave a call out.
        let is_call = |one: &&Message<'_>| one.asks_for().is_some() && !one.method.attributes.iter().any(is_cfg);
        let Some(call) = self.messages.iter().find(is_call) else { return Ok(()) };
        let text = format!(
            "the message of `{}` has a `Reply`, which cannot be cloned. To reach a whole group, send to each of its \
             `group_members` instead of a `broadcast`",
            call.method.name
        );
        Err(Error::new_spanned(clone, text))
    }
}

/// The name of the actor's type, without its path and its arguments.
fn name_of(self_type: &Type) -> Result<Ident> {
    match self_type {
        Type::Path(path) if path.qself.is_none() => Ok(path
            .path
            .segments
            .last()
            .map_or_else(|| Ident::new("Actor", Span::call_site()), |last| last.ident.unraw())),
        Type::Group(group) => name_of(&group.elem),
        other => Err(Error::new_spanned(other, "an actor is a struct or an enum, named by its path")),
    }
}

impl<'a> Message<'a> {
    /// `before` has the messages of the methods above.
    fn of(method: &'a Method, before: &[Message<'a>]) -> Result<Message<'a>> {
        let name = method.name.unraw();
        if HIDDEN.iter().any(|hidden| name == hidden) {
            let text = format!(
                "`Handle` or `ProcessRef` has a method `{name}`, which would hide this call: choose another name"
            );
            return Err(Error::new(method.name.span(), text));
        }
        let variant = variant(&method.name);
        let is_twin =
            |other: &Message<'_>| other.method.name == method.name && exclude_each_other(other.method, method);
        if let Some(other) = before.iter().find(|other| other.variant == variant && !is_twin(other)) {
            let other = &other.method.name;
            let text = if *other == method.name {
                format!(
                    "there is a method `{other}` already: choose another name, or put `#[cfg]`s that exclude each \
                     other on both"
                )
            } else {
                format!("this message is `{variant}`, as that of `{other}` is: choose another name")
            };
            return Err(Error::new(method.name.span(), text));
        }
        if let Some(first) = before.first()
            && tokens(&first.method.visibility).to_string() != tokens(&method.visibility).to_string()
        {
            let text = format!(
                "all messages of an actor have one visibility, and `{}` has another: put helpers into another \
                 `impl` block",
                first.method.name
            );
            return Err(Error::new(method.name.span(), text));
        }
        let parameters = method.inputs.iter().map(Parameter::of).collect::<Result<Vec<_>>>()?;
        let mut replies = parameters.iter().filter_map(|one| match one {
            Parameter::Reply(input, _) => Some(input),
            _ => None,
        });
        let reply = replies.next();
        if let Some(second) = replies.next() {
            return Err(Error::new(second.name.span(), "a message has one `Reply`: whom would the second one answer?"));
        }
        let answer = answer(method)?;
        if let Some(answer) = answer
            && reply.is_some()
        {
            let text = "a message is answered by what it returns or by its `Reply`, not by both";
            return Err(Error::new_spanned(answer, text));
        }
        if let Some(answer) = answer {
            refuse_borrowed(answer)?;
        }
        Ok(Message { method, variant, parameters, answer })
    }

    /// The type of the answer, however it is given.
    pub(crate) fn asks_for(&self) -> Option<&'a Type> {
        self.answer.or_else(|| {
            self.parameters.iter().find_map(|one| match one {
                Parameter::Reply(_, answer) => Some(*answer),
                _ => None,
            })
        })
    }
}

/// Whether the conditions of two methods differ. The compiler refuses them if both are there nevertheless.
fn exclude_each_other(one: &Method, other: &Method) -> bool {
    let conditions = |method: &Method| {
        let conditions = method.attributes.iter().filter(|attribute| is_cfg(attribute));
        conditions.map(|condition| tokens(condition).to_string()).collect::<Vec<_>>()
    };
    let (one, other) = (conditions(one), conditions(other));
    !one.is_empty() && !other.is_empty() && one != other
}

/// Whether an attribute is `#[cfg]`.
pub(crate) fn is_cfg(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
}

/// The type of the value that a method returns, without the `Result` of `#[fails]`.
fn answer(method: &Method) -> Result<Option<&Type>> {
    let returned = match &method.output {
        ReturnType::Default => None,
        ReturnType::Type(_, returned) => Some(&**returned),
    };
    let value = match (&method.fails, returned) {
        (None, returned) => returned,
        (Some(_), Some(returned)) => match only_argument(returned, "Result", 2) {
            Some(value) => Some(value),
            None => {
                return Err(Error::new_spanned(returned, "`#[fails]` needs a method that returns a `Result<.., ..>`"));
            }
        },
        (Some(fails), None) => {
            return Err(Error::new_spanned(fails, "`#[fails]` needs a method that returns a `Result<.., ..>`"));
        }
    };
    Ok(value.filter(|value| !matches!(value, Type::Tuple(tuple) if tuple.elems.is_empty())))
}

impl<'a> Callback<'a> {
    fn of(method: &'a Method, on: &Ident, before: &[Callback<'a>]) -> Result<Callback<'a>> {
        let Some(event) = EVENTS.iter().find(|event| on == event.name) else {
            return Err(Error::new(on.span(), format!("there is no event `{on}`: say one of {}", events())));
        };
        let is_same = |other: &&Callback<'_>| other.event.name == event.name;
        if let Some(other) = before.iter().filter(is_same).find(|other| !exclude_each_other(other.method, method)) {
            let text = format!("`{}` handles this event already", other.method.name);
            return Err(Error::new(on.span(), text));
        }
        let (mut parameters, mut values) = (Vec::new(), usize::from(event.carries.is_some()));
        for input in &method.inputs {
            if is_actions(&input.kind) {
                parameters.push(Parameter::Actions);
                continue;
            }
            if values == 0 {
                let text = match event.carries {
                    Some(_) => format!("`#[on({on})]` has one event"),
                    None => format!("`#[on({on})]` has no event: its only parameter is `out: &mut Actions<Self>`"),
                };
                return Err(Error::new(input.name.span(), text));
            }
            values -= 1;
            parameters.push(Parameter::Value(input));
        }
        let value = answer(method)?;
        let is_finish = event.name == "finish";
        match value {
            Some(value) if !is_finish => {
                let text = "nobody takes this value: a callback returns nothing, or a `Result<(), ..>` with `#[fails]`";
                Err(Error::new_spanned(value, text))
            }
            output => Ok(Callback { method, event, parameters, output }),
        }
    }
}

impl<'a> Parameter<'a> {
    fn of(input: &'a Input) -> Result<Parameter<'a>> {
        if is_actions(&input.kind) {
            return Ok(Parameter::Actions);
        }
        if input.name == "_" {
            return Err(Error::new(
                input.name.span(),
                "the call needs a name for this parameter, for example `_unused`",
            ));
        }
        refuse_borrowed(&input.kind)?;
        Ok(match only_argument(&input.kind, "Reply", 1) {
            Some(answer) => Parameter::Reply(input, answer),
            None => Parameter::Value(input),
        })
    }
}

/// Whether a type is `&mut Actions<..>`.
fn is_actions(kind: &Type) -> bool {
    let Type::Reference(reference) = kind else { return false };
    let Type::Path(path) = &*reference.elem else { return false };
    reference.mutability.is_some() && path.path.segments.last().is_some_and(|last| last.ident == "Actions")
}

/// The first argument of `Name<T>`, which has at most so many.
fn only_argument<'a>(kind: &'a Type, name: &str, most: usize) -> Option<&'a Type> {
    let path = match kind {
        Type::Path(path) => path,
        Type::Group(group) => return only_argument(&group.elem, name, most),
        _ => return None,
    };
    let last = path.path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(first)) if arguments.args.len() <= most => Some(first),
        _ => None,
    }
}

/// Refuses a type that borrows something. A message travels to another thread, and lives as long as it waits.
fn refuse_borrowed(kind: &Type) -> Result<()> {
    let refuse = |what: &dyn quote::ToTokens| {
        let text = "a message borrows nothing, because it travels to another thread: take an owned value. For effects, \
                    take `out: &mut Actions<Self>`";
        Err(Error::new_spanned(what, text))
    };
    match kind {
        Type::Reference(reference) => match &reference.lifetime {
            Some(lifetime) if lifetime.ident == "static" => refuse_borrowed(&reference.elem),
            _ => refuse(kind),
        },
        Type::ImplTrait(_) => Err(Error::new_spanned(kind, "a message has one type: name it instead of `impl ..`")),
        Type::Path(path) => {
            let arguments = path.path.segments.iter().filter_map(|segment| match &segment.arguments {
                PathArguments::AngleBracketed(arguments) => Some(&arguments.args),
                _ => None,
            });
            for argument in arguments.flatten() {
                match argument {
                    GenericArgument::Lifetime(lifetime) if lifetime.ident != "static" => return refuse(lifetime),
                    GenericArgument::Type(inner) => refuse_borrowed(inner)?,
                    _ => {}
                }
            }
            Ok(())
        }
        Type::Tuple(tuple) => tuple.elems.iter().try_for_each(refuse_borrowed),
        Type::Array(array) => refuse_borrowed(&array.elem),
        Type::Group(group) => refuse_borrowed(&group.elem),
        Type::Paren(paren) => refuse_borrowed(&paren.elem),
        _ => Ok(()),
    }
}

/// The name of a variant: `add_many` becomes `AddMany`.
fn variant(method: &Ident) -> Ident {
    let mut name = String::new();
    for word in method.unraw().to_string().split('_') {
        let mut letters = word.chars();
        name.extend(letters.next().map(|first| first.to_uppercase().collect::<String>()));
        name.push_str(letters.as_str());
    }
    if name.is_empty() || name == "Self" || name.starts_with(|first: char| first.is_ascii_digit()) {
        name.insert(0, '_');
    }
    Ident::new(&name, method.span())
}
