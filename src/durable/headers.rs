//! The headers behind a stored message: values that a program may leave out.
//!
//! A header has a sort and bytes. A program passes over the sorts that it does not know. So a later program may add
//! one, and this program still reads the message.

/// The sort of the header with the context of a trace.
const TRACE: u8 = 1;

/// Appends the header with the context of a trace, if there is one.
pub(super) fn append_trace(body: &mut Vec<u8>, trace: Option<&[u8]>) -> Result<(), postcard::Error> {
    let Some(trace) = trace else { return Ok(()) };
    body.append(&mut postcard::to_stdvec(&(TRACE, trace))?);
    Ok(())
}

/// The context of a trace among these headers.
pub(super) fn trace_in(mut headers: &[u8]) -> Option<Vec<u8>> {
    while let Ok(((sort, value), rest)) = postcard::take_from_bytes::<(u8, &[u8])>(headers) {
        if sort == TRACE {
            return Some(value.to_vec());
        }
        headers = rest;
    }
    None
}
