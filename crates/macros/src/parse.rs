//! Reads the arguments of the attribute, and the block.
//!
//! The bodies of methods stay tokens. So a body that an editor has not completed, or whose syntax is newer than the
//! parser, does not hide the rest of the block.

use proc_macro2::{Group, Ident, TokenStream};
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Generics, Lifetime, LitInt, Meta, Path, Result, ReturnType, Token, Type, Visibility};

/// The arguments of the attribute: `#[actor(derive(Clone), messages_a_step = 16)]`.
#[derive(Default)]
pub(crate) struct Arguments {
    pub(crate) derives: Vec<Path>,
    pub(crate) messages_a_step: Option<LitInt>,
}

/// The block, read but not understood.
pub(crate) struct Block {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) generics: Generics,
    pub(crate) self_type: Type,
    /// Without methods that have an error.
    pub(crate) methods: Vec<Method>,
    pub(crate) errors: Option<Error>,
}

pub(crate) struct Method {
    /// Without `#[on]` and `#[fails]`.
    pub(crate) attributes: Vec<Attribute>,
    /// The event that `#[on]` names.
    pub(crate) on: Option<Ident>,
    pub(crate) fails: Option<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) name: Ident,
    /// The parameters, as they were written.
    pub(crate) parameters: Group,
    pub(crate) inputs: Vec<Input>,
    pub(crate) output: ReturnType,
    pub(crate) body: Group,
}

/// A parameter other than `self`.
pub(crate) struct Input {
    /// A name or `_`.
    pub(crate) name: Ident,
    pub(crate) kind: Type,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Arguments> {
        let mut arguments = Arguments::default();
        while !input.is_empty() {
            let name = input.call(Ident::parse_any)?;
            if name == "derive" {
                let list;
                syn::parenthesized!(list in input);
                arguments.derives.extend(Punctuated::<Path, Token![,]>::parse_terminated(&list)?);
            } else if name == "messages_a_step" {
                input.parse::<Token![=]>()?;
                let most: LitInt = input.parse()?;
                if most.base10_parse::<usize>()? == 0 {
                    return Err(Error::new(most.span(), "`messages_a_step` must be at least 1"));
                }
                if arguments.messages_a_step.replace(most).is_some() {
                    return Err(Error::new(name.span(), "`messages_a_step` is given twice: remove one"));
                }
            } else {
                let text = format!("`{name}` is no argument of `#[actor]`: say `derive(..)` or `messages_a_step = ..`");
                return Err(Error::new(name.span(), text));
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(arguments)
    }
}

impl Parse for Block {
    fn parse(input: ParseStream<'_>) -> Result<Block> {
        let attributes = input.call(Attribute::parse_outer)?;
        if !input.peek(Token![impl]) {
            return Err(input.error("`#[actor]` belongs on the `impl` block that has the messages of the actor"));
        }
        input.parse::<Token![impl]>()?;
        let mut generics: Generics = input.parse()?;
        let self_type: Type = input.parse()?;
        if let Some(of_trait) = input.parse::<Option<Token![for]>>()? {
            let text = "`#[actor]` belongs on a block with methods of the actor itself, not on the `impl` of a trait";
            return Err(Error::new(of_trait.span, text));
        }
        generics.where_clause = input.parse()?;
        let body;
        syn::braced!(body in input);
        let mut methods = Vec::new();
        let mut errors: Option<Error> = None;
        while !body.is_empty() {
            match method(&body, &mut errors) {
                Ok(method) => methods.extend(method),
                Err(error) => {
                    note(&mut errors, error);
                    skip_item(&body)?;
                }
            }
        }
        Ok(Block { attributes, generics, self_type, methods, errors })
    }
}

/// Adds an error to those that are reported together.
pub(crate) fn note(errors: &mut Option<Error>, error: Error) {
    match errors {
        None => *errors = Some(error),
        Some(errors) => errors.combine(error),
    }
}

/// Goes past the item in which an error was found. An item ends with a semicolon, or with its body.
fn skip_item(body: ParseStream<'_>) -> Result<()> {
    while !body.is_empty() {
        let ends_here = body.peek(Token![;]) || body.peek(syn::token::Brace);
        body.parse::<proc_macro2::TokenTree>()?;
        if ends_here {
            break;
        }
    }
    Ok(())
}

/// Reads a method. An error of a method whose end was found is noted. Another error is returned.
fn method(body: ParseStream<'_>, errors: &mut Option<Error>) -> Result<Option<Method>> {
    let (mut attributes, mut on, mut fails) = (Vec::new(), None, None);
    let mut wrong = None;
    for attribute in body.call(Attribute::parse_outer)? {
        if attribute.path().is_ident("on") {
            match attribute.parse_args_with(Ident::parse_any) {
                Ok(_) if on.is_some() => wrong = Some(Error::new_spanned(attribute, "a method handles one event")),
                Ok(event) => on = Some(event),
                Err(error) => {
                    let text = format!("`#[on(..)]` names one event: {}", super::model::events());
                    wrong = Some(Error::new(error.span(), text));
                }
            }
        } else if attribute.path().is_ident("fails") {
            wrong = attribute.meta.require_path_only().err().or(wrong);
            fails = Some(attribute);
        } else if let Some(hidden) = conditional(&attribute) {
            let text = "`#[actor]` does not see this attribute in a `cfg_attr`: write the method twice, under \
                        `#[cfg]`s that exclude each other";
            wrong = Some(Error::new_spanned(hidden, text));
        } else {
            attributes.push(attribute);
        }
    }
    let visibility = body.parse()?;
    refuse_what_is_no_method(body)?;
    body.parse::<Token![fn]>()?;
    let name = body.call(Ident::parse_any)?;
    let generics: Generics = body.parse()?;
    if generics.lt_token.is_some() {
        let text = "a message has one type: `#[actor]` takes no generic methods";
        return Err(Error::new_spanned(generics, text));
    }
    let parameters: Group = body.parse()?;
    let inputs = match inputs(&name).parse2(parameters.stream()) {
        Ok(inputs) => inputs,
        Err(error) => {
            wrong = Some(error);
            Vec::new()
        }
    };
    let output = body.parse()?;
    if body.peek(Token![where]) {
        return Err(body.error("`#[actor]` takes no method with bounds: put them on the `impl` block"));
    }
    if !body.peek(syn::token::Brace) {
        return Err(body.error("expected the body of the method"));
    }
    let body: Group = body.parse()?;
    if let Some(wrong) = wrong {
        note(errors, wrong);
        return Ok(None);
    }
    Ok(Some(Method { attributes, on, fails, visibility, name, parameters, inputs, output, body }))
}

/// The attribute under a `cfg_attr` that would change what the method means, if there is one.
fn conditional(attribute: &Attribute) -> Option<Path> {
    let list = attribute.meta.require_list().ok().filter(|list| list.path.is_ident("cfg_attr"))?;
    let all = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
    let mut given = all.into_iter().skip(1).map(|meta| meta.path().clone());
    given.find(|path| ["cfg", "cfg_attr", "fails", "on"].iter().any(|name| path.is_ident(name)))
}

fn refuse_what_is_no_method(body: ParseStream<'_>) -> Result<()> {
    if body.peek(Token![async]) {
        return Err(body.error(
            "a message cannot be an `async fn`, because a step must not wait: yield the future with `out.future(..)` \
             and handle its result with `.then(out, ..)`, or write the process as an `async_process`",
        ));
    }
    let is_qualified = body.peek(Token![const]) && (body.peek2(Token![fn]) || body.peek2(Token![unsafe]));
    if is_qualified || body.peek(Token![unsafe]) || body.peek(Token![extern]) {
        return Err(body.error("a message is a plain `fn`, without `const`, `unsafe` and `extern`"));
    }
    if !body.peek(Token![fn]) {
        let text = "every item of an `#[actor]` block is a message or a callback: move this to another `impl` block";
        return Err(body.error(text));
    }
    Ok(())
}

/// Reads the parameters of a method with this name.
fn inputs(name: &Ident) -> impl FnOnce(ParseStream<'_>) -> Result<Vec<Input>> + '_ {
    move |input| {
        receiver(name, input)?;
        let mut inputs = Vec::new();
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                break;
            }
            if let Some(attribute) = input.call(Attribute::parse_outer)?.first() {
                return Err(Error::new_spanned(attribute, "a parameter of a message has no attributes"));
            }
            input.parse::<Option<Token![mut]>>()?;
            let is_name = input.peek(Ident::peek_any) && !input.peek(Token![ref]);
            if !is_name || !input.peek2(Token![:]) || input.peek2(Token![::]) {
                let text = "a parameter of a message is a plain name: take the pattern apart in the body";
                return Err(input.error(text));
            }
            let name = input.call(Ident::parse_any)?;
            input.parse::<Token![:]>()?;
            inputs.push(Input { name, kind: input.parse()? });
        }
        Ok(inputs)
    }
}

fn receiver(name: &Ident, input: ParseStream<'_>) -> Result<()> {
    let wants = "a message takes `&mut self` or `&self`";
    let reference: Option<Token![&]> = input.parse()?;
    if let Some(lifetime) = input.parse::<Option<Lifetime>>()? {
        return Err(Error::new(lifetime.span(), format!("{wants}, without a lifetime")));
    }
    input.parse::<Option<Token![mut]>>()?;
    if !input.peek(Token![self]) {
        let text = format!("{wants}: move a function without `self` to another `impl` block");
        return Err(Error::new(name.span(), text));
    }
    let this: Token![self] = input.parse()?;
    if reference.is_none() || input.peek(Token![:]) {
        return Err(Error::new(this.span, format!("{wants}, because the actor stays")));
    }
    Ok(())
}

/// The tokens of a type or a list, for comparisons and messages.
pub(crate) fn tokens(of: &impl quote::ToTokens) -> TokenStream {
    of.to_token_stream()
}
