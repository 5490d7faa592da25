//! The identity of a span as bytes: the header `traceparent` of W3C, and behind a space the header `tracestate`, if
//! there is one.

use std::str::FromStr;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// The most bytes of a `tracestate`, as W3C has them. A longer one does not travel.
const LONGEST_STATE: usize = 512;

/// The lengths of the hexadecimal numbers of a `traceparent`: version, trace, span and flags.
const LENGTHS: [usize; 4] = [2, 32, 16, 2];

pub(crate) fn write(span: &SpanContext) -> Vec<u8> {
    let flags = span.trace_flags() & TraceFlags::SAMPLED;
    let mut text = format!("00-{}-{}-{flags:02x}", span.trace_id(), span.span_id());
    let state = span.trace_state().header();
    if !state.is_empty() && state.len() <= LONGEST_STATE {
        text.push(' ');
        text.push_str(&state);
    }
    text.into_bytes()
}

/// Reads what another node has written, or anything else that it sends. An invalid `tracestate` is left out.
pub(crate) fn read(bytes: &[u8]) -> Option<SpanContext> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (parent, state) = text.split_once(' ').unwrap_or((text, ""));
    let numbers: Vec<&str> = parent.split('-').collect();
    let [version, trace, span, flags] = numbers[..] else { return None };
    let is_number = |(text, length): (&&str, usize)| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    if version != "00" || !numbers.iter().zip(LENGTHS).all(is_number) {
        return None;
    }
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let state = Some(state).filter(|state| state.len() <= LONGEST_STATE);
    let state = state.and_then(|state| TraceState::from_str(state).ok()).unwrap_or_default();
    let span = SpanContext::new(trace, span, flags, true, state);
    span.is_valid().then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn an_identity_comes_back_with_its_flags_and_its_state() {
        for text in [PARENT.into(), PARENT.replace("-01", "-00"), format!("{PARENT} one=1,two=2")] {
            let span = read(text.as_bytes()).unwrap();
            assert!(span.is_remote());
            assert_eq!(span.is_sampled(), !text.ends_with("-00"));
            assert_eq!(String::from_utf8(write(&span)).unwrap(), text);
        }
    }

    #[test]
    fn a_state_that_is_long_or_wrong_is_left_out() {
        let long: Vec<_> = (0..20).map(|n| (format!("key{n}"), "x".repeat(50))).collect();
        let long = TraceState::from_key_value(long).unwrap();
        let span = read(PARENT.as_bytes()).unwrap();
        let (trace, id) = (span.trace_id(), span.span_id());
        let span = SpanContext::new(trace, id, TraceFlags::SAMPLED, false, long.clone());
        assert_eq!(write(&span), PARENT.as_bytes());
        for state in [long.header(), "no list".into(), "UPPER=1".into(), ",,".into()] {
            let read = read(format!("{PARENT} {state}").as_bytes()).unwrap();
            assert_eq!(read.trace_state(), &TraceState::default(), "{state}");
        }
    }

    #[test]
    fn bytes_that_are_no_identity_are_refused() {
        let none = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        let no_span = "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01";
        let signed = PARENT.replace("0af7", "+af7");
        let upper = PARENT.to_uppercase();
        let texts = ["", " ", "-", "---", "00---", none, no_span, &signed, &upper, &PARENT.replace("00-", "ff-")];
        for text in texts {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
        // Torn, longer, and with a byte that is no text.
        for end in 0..PARENT.len() {
            assert_eq!(read(&PARENT.as_bytes()[..end]), None);
        }
        assert_eq!(read(format!("{PARENT}-00").as_bytes()), None);
        for place in 0..PARENT.len() {
            let mut bytes = PARENT.as_bytes().to_vec();
            bytes[place] = 0xff;
            assert_eq!(read(&bytes), None);
        }
    }
}
