//! The state of a stack as bytes: each block's exported state behind its name. Blocks find their state by name, so a
//! stack with an extra block, or another order, can continue the flow.
//!
//! ```text
//! version: u8 = 1 | block count: u8 | { name length: u8 | name | state length: u32, big-endian | state } ...
//! ```

use crate::outcome::ImportError;

const VERSION: u8 = 1;

/// Takes `N` bytes from the front of a state.
pub(crate) fn take<'a, const N: usize>(state: &mut &'a [u8]) -> Result<&'a [u8; N], ImportError> {
    let (chunk, rest) = state.split_first_chunk().ok_or(ImportError::Malformed)?;
    *state = rest;
    Ok(chunk)
}

fn take_bytes<'a>(state: &mut &'a [u8], length: usize) -> Result<&'a [u8], ImportError> {
    let (bytes, rest) = state.split_at_checked(length).ok_or(ImportError::Malformed)?;
    *state = rest;
    Ok(bytes)
}

/// Serialises at most 255 blocks. `None` if there are more, or if a name or a state is too long.
pub(crate) fn write(states: &[(&str, Vec<u8>)]) -> Option<Vec<u8>> {
    let mut out = vec![VERSION, u8::try_from(states.len()).ok()?];
    for (name, state) in states {
        out.push(u8::try_from(name.len()).ok()?);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&u32::try_from(state.len()).ok()?.to_be_bytes());
        out.extend_from_slice(state);
    }
    Some(out)
}

pub(crate) fn read(mut bytes: &[u8]) -> Result<Vec<(&str, &[u8])>, ImportError> {
    let [VERSION, count] = *take::<2>(&mut bytes)? else { return Err(ImportError::Malformed) };
    let mut states = Vec::with_capacity(count.into());
    for _ in 0..count {
        let [length] = *take::<1>(&mut bytes)?;
        let name = std::str::from_utf8(take_bytes(&mut bytes, length.into())?).map_err(|_| ImportError::Malformed)?;
        let length = u32::from_be_bytes(*take(&mut bytes)?);
        let length = usize::try_from(length).map_err(|_| ImportError::Malformed)?;
        states.push((name, take_bytes(&mut bytes, length)?));
    }
    match bytes {
        [] => Ok(states),
        _ => Err(ImportError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_shorter_or_longer() {
        let states = [("udp", vec![1, 2, 3]), ("dummy", vec![])];
        let mut bytes = write(&states).unwrap();
        assert_eq!(read(&bytes), Ok(vec![("udp", &[1, 2, 3][..]), ("dummy", &[][..])]));
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length]), Err(ImportError::Malformed), "{length}");
        }
        bytes.push(0);
        assert_eq!(read(&bytes), Err(ImportError::Malformed));
        assert_eq!(read(&[2, 0]), Err(ImportError::Malformed));
    }
}
