//! Writes the code: the block itself, the enum of messages, the actor, and the trait of calls.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::{Attribute, GenericParam, Generics, Token, WherePredicate};

use super::model::{Actor, Callback, Message, Parameter, is_cfg};
use super::parse::{Arguments, Block};

pub(crate) fn code(arguments: &Arguments, block: &Block, actor: &Actor<'_>) -> TokenStream {
    let same = same_block(block);
    let writer = Writer { block, actor, generics: message_generics(block, actor) };
    let of_actor = writer.actor(arguments);
    // An enum without variants would have no method from which to take its visibility.
    let reached = (!actor.messages.is_empty()).then(|| [writer.message(arguments), writer.calls()]);
    let [message, calls] = reached.unwrap_or_default();
    quote!(#same #message #of_actor #calls)
}

/// The block as it was written, without the attributes of this macro.
fn same_block(block: &Block) -> TokenStream {
    let Block { attributes, generics, self_type, methods, errors: _ } = block;
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let methods = methods.iter().map(|method| {
        let (attributes, visibility, name) = (&method.attributes, &method.visibility, &method.name);
        let (parameters, output, body) = (&method.parameters, &method.output, &method.body);
        quote!(#(#attributes)* #visibility fn #name #parameters #output #body)
    });
    quote!(#(#attributes)* impl #impl_generics #self_type #where_clause { #(#methods)* })
}

struct Writer<'a> {
    block: &'a Block,
    actor: &'a Actor<'a>,
    /// The parameters of the block that the messages use.
    generics: Generics,
}

impl Writer<'_> {
    /// The type of the messages.
    fn message_type(&self) -> TokenStream {
        let Actor { message, messages, .. } = self.actor;
        let (_, arguments, _) = self.generics.split_for_impl();
        if messages.is_empty() { quote!(::core::convert::Infallible) } else { quote!(#message #arguments) }
    }

    fn message(&self, arguments: &Arguments) -> TokenStream {
        let Actor { message, visibility, messages, .. } = self.actor;
        let (derives, cfgs) = (&arguments.derives, self.cfgs());
        let derive = (!derives.is_empty()).then(|| quote!(#[derive(#(#derives),*)]));
        let (generics, where_clause) = (&self.generics, &self.generics.where_clause);
        let variants = messages.iter().map(|one| {
            let (attributes, variant) = (carried(&one.method.attributes), &one.variant);
            let mut fields: Vec<TokenStream> = one.parameters.iter().filter_map(|one| self.field(one)).collect();
            fields.extend(one.answer.map(|answer| {
                let answer = self.named(answer);
                quote!(::procession::Reply<#answer>)
            }));
            let fields = (!fields.is_empty()).then(|| quote!((#(#fields),*)));
            quote!(#(#attributes)* #variant #fields)
        });
        let doc = format!(" The messages of `{}`.", self.name());
        quote! {
            #(#cfgs)*
            #[doc = #doc]
            #derive
            #visibility enum #message #generics #where_clause { #(#variants),* }
        }
    }

    fn field(&self, parameter: &Parameter<'_>) -> Option<TokenStream> {
        match parameter {
            Parameter::Value(input) | Parameter::Reply(input, _) => Some(self.named(&input.kind)),
            Parameter::Actions => None,
        }
    }

    fn actor(&self, arguments: &Arguments) -> TokenStream {
        let Block { generics, self_type, .. } = self.block;
        let Actor { messages, callbacks, .. } = self.actor;
        let (impl_generics, _, where_clause) = generics.split_for_impl();
        let message_type = self.message_type();
        let cfgs = self.cfgs();
        let output = self.output();
        let step = arguments.messages_a_step.as_ref();
        let step = step.map(|messages| quote!(const MESSAGES_A_STEP: usize = #messages;));
        let receive = self.receive(messages);
        let callbacks = callbacks.iter().map(|callback| self.callback(callback));
        let no_finish = self.no_finish();
        quote! {
            #(#cfgs)*
            impl #impl_generics ::procession::actor::Actor for #self_type #where_clause {
                type Message = #message_type;
                #output
                #step
                #receive
                #(#callbacks)*
                #no_finish
            }
        }
    }

    /// The type of the output. A method that a condition leaves out gives none.
    fn output(&self) -> TokenStream {
        let mut written = TokenStream::new();
        for finish in self.finishing() {
            let output = finish.output.map_or_else(|| quote!(()), |output| self.named(output));
            let cfgs = finish.method.attributes.iter().filter(|attribute| is_cfg(attribute));
            written.extend(quote!(#(#cfgs)* type Output = #output;));
        }
        if let Some(no_other) = self.no_finishing() {
            written.extend(quote!(#no_other type Output = ();));
        }
        written
    }

    /// `finish` of an actor that has no method for it.
    fn no_finish(&self) -> Option<TokenStream> {
        let no_other = self.no_finishing()?;
        let result = quote!(::core::result::Result<(), ::procession::BoxError>);
        Some(quote! {
            #no_other
            fn finish(&mut self, _: &mut ::procession::actor::Actions<Self>) -> #result {
                ::core::result::Result::Ok(())
            }
        })
    }

    fn finishing(&self) -> impl Iterator<Item = &Callback<'_>> {
        self.actor.callbacks.iter().filter(|callback| callback.event.name == "finish")
    }

    /// The condition under which the block has no method that finishes. It is empty if there never is one. `None` if
    /// there always is one.
    fn no_finishing(&self) -> Option<TokenStream> {
        let mut conditions = Vec::new();
        for finish in self.finishing() {
            let cfgs = finish.method.attributes.iter().filter(|attribute| is_cfg(attribute));
            let all: Vec<_> = cfgs.filter_map(|cfg| Some(cfg.meta.require_list().ok()?.tokens.clone())).collect();
            if all.is_empty() {
                return None;
            }
            conditions.push(quote!(all(#(#all),*)));
        }
        Some(if conditions.is_empty() { TokenStream::new() } else { quote!(#[cfg(not(any(#(#conditions),*)))]) })
    }

    fn receive(&self, messages: &[Message<'_>]) -> TokenStream {
        let (message_enum, message_type) = (&self.actor.message, self.message_type());
        let takes_out = |one: &Message<'_>| one.parameters.iter().any(|one| matches!(one, Parameter::Actions));
        let uses_out = messages.iter().any(|one| takes_out(one) || one.answer.is_some());
        let (out, message, reply, answer) = (local("out"), local("message"), local("reply"), local("answer"));
        let out_name = if uses_out { out.to_token_stream() } else { quote!(_) };
        let arms = messages.iter().map(|one| {
            let (variant, method) = (&one.variant, &one.method.name);
            let cfgs = one.method.attributes.iter().filter(|attribute| is_cfg(attribute));
            let fields = one.parameters.iter().filter_map(field_name).chain(one.answer.map(|_| &reply));
            let fields: Vec<&Ident> = fields.collect();
            let fields = (!fields.is_empty()).then(|| quote!((#(#fields),*)));
            let given = one.parameters.iter().map(|one| field_name(one).unwrap_or(&out));
            let fails = one.method.fails.as_ref().map(|_| quote!(?));
            let call = quote_spanned!(Span::mixed_site()=> Self::#method(self, #(#given),*) #fails);
            let call = without_last_comma(call);
            match one.answer {
                None => quote!(#(#cfgs)* #message_enum::#variant #fields => #call,),
                Some(_) => quote!(#(#cfgs)* #message_enum::#variant #fields => {
                    let #answer = #call;
                    #out.reply(#reply, #answer);
                }),
            }
        });
        let this = quote_spanned!(Span::mixed_site()=> &mut self);
        let success = (!messages.is_empty()).then(|| quote!(::core::result::Result::Ok(())));
        // If the conditions leave all out, the match has no arm.
        let is_conditional = |one: &Message<'_>| one.method.attributes.iter().any(is_cfg);
        let may_be_empty = !messages.is_empty() && messages.iter().all(is_conditional);
        let allow = may_be_empty.then(|| quote!(#[allow(unreachable_code, unused_variables)]));
        quote! {
            #allow
            fn receive(
                #this,
                #message: #message_type,
                #out_name: &mut ::procession::actor::Actions<Self>
            ) -> ::core::result::Result<(), ::procession::BoxError> {
                match #message { #(#arms)* }
                #success
            }
        }
    }

    fn callback(&self, callback: &Callback<'_>) -> TokenStream {
        let (name, method) = (Ident::new(callback.event.name, Span::mixed_site()), &callback.method.name);
        let (out, event) = (local("out"), local("event"));
        let uses = |wanted: fn(&Parameter<'_>) -> bool| callback.parameters.iter().any(wanted);
        let out_name = if uses(|one| matches!(one, Parameter::Actions)) { out.to_token_stream() } else { quote!(_) };
        let event_name =
            if uses(|one| !matches!(one, Parameter::Actions)) { event.to_token_stream() } else { quote!(_) };
        let event_type = callback.event.carries.map(|path| {
            let path = path.iter().map(|segment| Ident::new(segment, Span::call_site()));
            // Only `Event` has an argument.
            let message = (callback.event.name == "other").then(|| quote!(<Self::Message>));
            quote!(#event_name: ::procession #(::#path)* #message,)
        });
        let given = callback.parameters.iter().map(|one| match one {
            Parameter::Actions => &out,
            _ => &event,
        });
        let fails = callback.method.fails.as_ref().map(|_| quote!(?));
        let call = without_last_comma(quote_spanned!(Span::mixed_site()=> Self::#method(self, #(#given),*) #fails));
        let output = callback.output.map_or_else(|| quote!(()), |output| self.named(output));
        let body = match callback.output {
            Some(_) => quote!(::core::result::Result::Ok(#call)),
            None => quote!(#call; ::core::result::Result::Ok(())),
        };
        let cfgs = callback.method.attributes.iter().filter(|attribute| is_cfg(attribute));
        let this = quote_spanned!(Span::mixed_site()=> &mut self);
        quote! {
            #(#cfgs)*
            fn #name(
                #this,
                #event_type
                #out_name: &mut ::procession::actor::Actions<Self>
            ) -> ::core::result::Result<#output, ::procession::BoxError> {
                #body
            }
        }
    }

    fn calls(&self) -> TokenStream {
        let Actor { message, calls, visibility, messages, .. } = self.actor;
        let cfgs = self.cfgs();
        let (impl_generics, arguments, where_clause) = self.generics.split_for_impl();
        let reach = quote!(::procession::actor::Reach<#message #arguments>);
        let methods = messages.iter().map(|one| self.call(one));
        let doc = format!(" The calls of `{}`: one for each of its messages.", self.name());
        // A name that no parameter of the block has.
        let mut implementor = String::from("R");
        while self.generics.type_params().any(|one| one.ident == implementor) {
            implementor.push('_');
        }
        let implementor = Ident::new(&implementor, Span::mixed_site());
        let parameters = self.generics.params.iter();
        let with_implementor = quote!(<#(#parameters,)* #implementor: #reach>);
        quote! {
            #(#cfgs)*
            #[doc = #doc]
            #[allow(dead_code)]
            #visibility trait #calls #impl_generics: #reach #where_clause { #(#methods)* }
            #(#cfgs)*
            impl #with_implementor #calls #arguments for #implementor #where_clause {}
        }
    }

    fn call(&self, one: &Message<'_>) -> TokenStream {
        let (message, variant, name) = (&self.actor.message, &one.variant, &one.method.name);
        let (_, arguments, _) = self.generics.split_for_impl();
        let attributes = carried(&one.method.attributes);
        let reply = local("reply");
        let inputs = one.parameters.iter().filter_map(|one| match one {
            Parameter::Value(input) => {
                let (name, kind) = (&input.name, self.named(&input.kind));
                Some(quote!(#name: #kind))
            }
            _ => None,
        });
        let asks = one.asks_for().map(|answer| self.named(answer));
        let asked = one.parameters.iter().find_map(|one| match one {
            Parameter::Reply(input, _) => Some(&input.name),
            _ => None,
        });
        let fields = one.parameters.iter().filter_map(field_name).chain(one.answer.map(|_| &reply));
        let fields: Vec<&Ident> = fields.collect();
        let fields = (!fields.is_empty()).then(|| quote!((#(#fields),*)));
        let asked = asked.unwrap_or(&reply);
        let this = quote_spanned!(Span::mixed_site()=> self);
        let (returns, body) = match asks {
            None => (
                quote!(::core::result::Result<
                    (),
                    ::procession::Rejected<#message #arguments, ::procession::SendError>
                >),
                quote!(::procession::actor::Reach::reach_send(#this, #message::#variant #fields)),
            ),
            Some(answer) => (
                quote!(::procession::AskFuture<#answer>),
                quote!(::procession::actor::Reach::reach_ask(
                    #this,
                    |#asked| #message::#variant #fields,
                    ::procession::actor::CALL_LIMIT
                )),
            ),
        };
        quote!(#(#attributes)* fn #name(&#this #(, #inputs)*) -> #returns { #body })
    }

    /// The attributes `#[cfg]` of the block, which concern everything that is written for it.
    fn cfgs(&self) -> Vec<&Attribute> {
        self.block.attributes.iter().filter(|attribute| is_cfg(attribute)).collect()
    }

    /// The name of the actor, for documentation.
    fn name(&self) -> String {
        let message = self.actor.message.to_string();
        message.strip_suffix("Message").unwrap_or(&message).into()
    }

    /// A type in a place where `Self` would be another type: the actor instead.
    fn named(&self, kind: &syn::Type) -> TokenStream {
        with_self(kind.to_token_stream(), &self.block.self_type)
    }
}

/// Replaces `Self` by the type of the actor.
fn with_self(tokens: TokenStream, self_type: &syn::Type) -> TokenStream {
    let mut tokens = tokens.into_iter().peekable();
    let mut replaced = TokenStream::new();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(name) if name == "Self" => {
                let is_path = matches!(tokens.peek(), Some(TokenTree::Punct(next)) if next.as_char() == ':');
                replaced.extend(if is_path { quote!(<#self_type>) } else { quote!(#self_type) });
            }
            TokenTree::Group(group) => {
                let mut inside = Group::new(group.delimiter(), with_self(group.stream(), self_type));
                inside.set_span(group.span());
                replaced.extend([TokenTree::Group(inside)]);
            }
            other => replaced.extend([other]),
        }
    }
    replaced
}

/// The parameters of the block that the fields of messages use, with the bounds that name no others.
fn message_generics(block: &Block, actor: &Actor<'_>) -> Generics {
    let mut fields = TokenStream::new();
    for message in &actor.messages {
        for parameter in &message.parameters {
            if let Parameter::Value(input) | Parameter::Reply(input, _) = parameter {
                fields.extend(with_self(input.kind.to_token_stream(), &block.self_type));
            }
        }
        fields.extend(message.answer.map(|answer| with_self(answer.to_token_stream(), &block.self_type)));
    }
    let name = |parameter: &GenericParam| match parameter {
        GenericParam::Type(one) => one.ident.clone(),
        GenericParam::Const(one) => one.ident.clone(),
        GenericParam::Lifetime(one) => one.lifetime.ident.clone(),
    };
    let (used, unused): (Vec<_>, Vec<_>) =
        block.generics.params.iter().cloned().partition(|one| mentions(fields.clone(), &name(one)));
    let names_unused = |tokens: TokenStream| unused.iter().any(|one| mentions(tokens.clone(), &name(one)));
    let mut generics = block.generics.clone();
    generics.params = used.into_iter().collect();
    for parameter in generics.type_params_mut() {
        let bounds = std::mem::take(&mut parameter.bounds).into_iter();
        parameter.bounds = bounds.filter(|bound| !names_unused(bound.to_token_stream())).collect();
    }
    if let Some(clause) = &mut generics.where_clause {
        let all: Punctuated<WherePredicate, Token![,]> = std::mem::take(&mut clause.predicates);
        clause.predicates = all.into_iter().filter(|one| !names_unused(one.to_token_stream())).collect();
    }
    if generics.where_clause.as_ref().is_some_and(|clause| clause.predicates.is_empty()) {
        generics.where_clause = None;
    }
    if generics.params.is_empty() {
        (generics.lt_token, generics.gt_token) = (None, None);
    }
    generics
}

fn mentions(tokens: TokenStream, name: &Ident) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == *name,
        TokenTree::Group(group) => mentions(group.stream(), name),
        _ => false,
    })
}

fn field_name<'a>(parameter: &Parameter<'a>) -> Option<&'a Ident> {
    match parameter {
        Parameter::Value(input) | Parameter::Reply(input, _) => Some(&input.name),
        Parameter::Actions => None,
    }
}

/// The attributes of a method that its message and its call have, too: documentation and conditions.
fn carried(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("doc") || is_cfg(attribute))
}

/// A name that no name of the user's code can be confused with.
fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

/// `f(self,)` becomes `f(self)`.
fn without_last_comma(tokens: TokenStream) -> TokenStream {
    let group = |group: Group| {
        let mut inside: Vec<TokenTree> = group.stream().into_iter().collect();
        if matches!(inside.last(), Some(TokenTree::Punct(last)) if last.as_char() == ',') {
            inside.pop();
        }
        TokenTree::Group(Group::new(group.delimiter(), inside.into_iter().collect()))
    };
    tokens.into_iter().map(|token| if let TokenTree::Group(one) = token { group(one) } else { token }).collect()
}
