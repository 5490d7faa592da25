//! The headers of values.

use super::*;
use crate::cluster::codec::{HAS_HEADERS, TRACE, encode_in_trace, put_headers};

const VALUE: [u64; 3] = [1, 2, 3];

fn encoded(node: &Node, trace: Option<&[u8]>) -> Vec<u8> {
    let write = |to: &mut Output| to.encode(&VALUE).map_err(NotEncoded::Failed);
    encode_in_trace(&node.side, (0, MAX_BYTES), trace, write).unwrap().1.bytes
}

/// A value with these headers, and with no tables.
fn with_headers(headers: &[(u8, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![1, 2, 3];
    put_headers(&mut bytes, headers);
    bytes.extend([0, 0]);
    bytes.extend(HAS_HEADERS.to_le_bytes());
    bytes
}

#[test]
fn a_value_has_its_trace_beside_its_tables_and_no_byte_without_one() {
    let (me, other) = two();
    let plain = encoded(&me, None);
    assert_eq!(plain, [1, 2, 3, 0, 0, 0, 0], "as it always was");
    for trace in [&b"a trace"[..], &[0; 1_024]] {
        let bytes = encoded(&me, Some(trace));
        assert_eq!(bytes.len(), plain.len() + 5 + trace.len());
        let opened = open(&other.side, &bytes).unwrap();
        assert_eq!((opened.value, opened.trace), (&[1, 2, 3][..], Some(trace)));
    }
    // With both tables.
    let (ask, reply, _) = me.ask::<u64>();
    let write = |to: &mut Output| to.encode(&(pid(7, 5), &reply)).map_err(NotEncoded::Failed);
    let bytes = encode_in_trace(&me.side, (0, MAX_BYTES), Some(b"a trace"), write).unwrap().1.bytes;
    let opened = open(&other.side, &bytes).unwrap();
    assert_eq!((opened.trace, opened.asks().len()), (Some(&b"a trace"[..]), 1));
    let read = || Ok(postcard::from_bytes::<(Pid, Reply<u64>)>(opened.value)?);
    assert!(opened.decode(Some(reader()), read).is_ok());
    drop(ask);
}

#[test]
fn headers_that_are_not_known_are_passed_over() {
    let (_, other) = two();
    let bytes = with_headers(&[(9, b"unknown"), (TRACE, b"a trace"), (200, b"")]);
    let opened = open(&other.side, &bytes).unwrap();
    assert_eq!((opened.value, opened.trace), (&[1, 2, 3][..], Some(&b"a trace"[..])));
    let bytes = with_headers(&[(9, b"unknown")]);
    assert_eq!(open(&other.side, &bytes).unwrap().trace, None);
}

#[test]
fn torn_and_spoilt_headers_are_errors_and_no_panics() {
    let (_, other) = two();
    let whole = with_headers(&[(9, b"unknown"), (TRACE, b"a trace")]);
    for end in 0..whole.len() {
        // It may be a value without headers that ends so.
        drop(open(&other.side, &whole[..end]));
    }
    for place in 0..whole.len() {
        for byte in [0, 1, 3, 0x7f, 0x80, 0xff] {
            let mut spoilt = whole.clone();
            spoilt[place] = byte;
            drop(open(&other.side, &spoilt));
        }
    }
    // The length of all, and of one header, are too great.
    let (length, first) = (whole.len() - 6, 4);
    for place in [length, first] {
        let mut spoilt = whole.clone();
        spoilt[place] += 1;
        assert!(open(&other.side, &spoilt).is_err(), "{place}");
    }
}
