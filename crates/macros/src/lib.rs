//! The attribute macro of the crate `procession`. Use it through that crate.
//!
//! `parse` reads the block, `model` decides what each method means, and `generate` writes the code.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod parse;
mod model;
mod generate;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;

/// Makes an actor of an `impl` block: a message and a call for each method.
///
/// `procession::actor` describes it, with examples.
#[proc_macro_attribute]
pub fn actor(arguments: TokenStream, block: TokenStream) -> TokenStream {
    match expand(arguments.into(), block.into()) {
        Ok(code) => code.into(),
        Err(error) => error.into_compile_error().into(),
    }
}

fn expand(
    arguments: proc_macro2::TokenStream,
    block: proc_macro2::TokenStream,
) -> syn::Result<proc_macro2::TokenStream> {
    let arguments: parse::Arguments = syn::parse2(arguments)?;
    let block = syn::parse2(block)?;
    let actor = model::Actor::of(&block)?;
    actor.refuse_clones(&arguments)?;
    Ok(generate::code(&arguments, &block, &actor))
}
