//! The code that the macro writes, compared with files that were read and are compiled by themselves.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::expand;
use super::model::HIDDEN;

/// The tokens as text, each by itself. Commas at the end of a list or after a block are left out: `rustfmt` adds and
/// removes them.
fn text(tokens: TokenStream) -> String {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is = |n: usize, mark: char| matches!(tokens.get(n), Some(TokenTree::Punct(one)) if one.as_char() == mark);
    let is_block = |token: &TokenTree| matches!(token, TokenTree::Group(one) if one.delimiter() == Delimiter::Brace);
    let mut text = String::new();
    for (n, token) in tokens.iter().enumerate() {
        if is(n, ',') && (n + 1 == tokens.len() || is(n + 1, '>') || n > 0 && is_block(&tokens[n - 1])) {
            continue;
        }
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                text.extend([open, " ", &self::text(group.stream()), close, " "]);
            }
            other => text.extend([other.to_string().as_str(), " "]),
        }
    }
    text
}

/// The items of a file from the `impl` block with its attributes on, and the attribute's arguments if it has them.
fn split(file: &str) -> (TokenStream, TokenStream) {
    let mut tokens = file.parse::<TokenStream>().unwrap().into_iter().peekable();
    let mut arguments = TokenStream::new();
    // Everything up to the end of the struct belongs to the file, not to the block.
    while let Some(token) = tokens.next() {
        if matches!(&token, TokenTree::Ident(name) if name == "struct") {
            tokens
                .by_ref()
                .find(|token| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace));
            break;
        }
    }
    let mut block: Vec<TokenTree> = tokens.collect();
    if let [TokenTree::Punct(mark), TokenTree::Group(attribute), ..] = &block[..]
        && mark.as_char() == '#'
        && let mut inside = attribute.stream().into_iter()
        && matches!(inside.next(), Some(TokenTree::Ident(name)) if name == "actor")
    {
        if let Some(TokenTree::Group(given)) = inside.next() {
            arguments = given.stream();
        }
        block.drain(..2);
    }
    (arguments, block.into_iter().collect())
}

#[test]
fn the_expansion_is_the_checked_in_file() {
    let (arguments, block) = split(include_str!("../tests/reference/block.rs"));
    let (_, expected) = split(include_str!("../tests/reference/expanded.rs"));
    let (written, expected) = (text(expand(arguments, block).unwrap()), text(expected));
    if written != expected {
        let same = written.bytes().zip(expected.bytes()).take_while(|(one, other)| one == other).count();
        let near = |text: &str| text[same.saturating_sub(120)..(same + 200).min(text.len())].to_owned();
        panic!("written:  ..{}\n\nexpected: ..{}\n\nall:\n{written}", near(&written), near(&expected));
    }
}

/// The names of the methods of the types of handles, in the sources of the library.
#[test]
fn the_names_of_methods_of_handles_are_refused() {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/runtime");
    for file in ["handle.rs", "process_ref.rs"] {
        // A packed crate is without them.
        let Ok(source) = std::fs::read_to_string(format!("{sources}/{file}")) else { continue };
        let lines = source.lines().filter_map(|line| line.trim_start().strip_prefix("pub fn "));
        let methods = lines.filter_map(|line| line.split(['(', '<']).next());
        let missing: Vec<_> = methods.filter(|name| !HIDDEN.contains(name)).collect();
        assert!(missing.is_empty(), "add these to `HIDDEN`: {missing:?}");
    }
}

/// The documentation of the attribute is in the sources of the library.
#[test]
fn the_names_that_are_refused_are_those_of_the_documentation() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/actor/mod.rs");
    // A packed crate is without them.
    let Ok(source) = std::fs::read_to_string(path) else { return };
    let text: Vec<_> = source.lines().map(|line| line.trim_start_matches('/').trim()).collect();
    let text = text.join(" ");
    let list = format!("{}.", HIDDEN.map(|name| format!("`{name}`")).join(", "));
    assert!(text.contains(&list), "the documentation must have this list: {list}");
}
