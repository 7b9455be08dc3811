//! The share of the wire that a flow asks for, as text: a slice in each period, a weight among those that share the rest, or the
//! time that no other flow wants.

use crate::error::{NetError, NetErrorKind};
use qos::{Class, Guarantee};

/// Reads `4ms/100ms`, `4ms/100ms+slack`, `fair`, `fair:3` or `background`. `is_paced`: the wire has a rate; slices are parts of one.
///
/// # Errors
///
/// `Request`: the text has another form, or asks for a slice of a wire without a rate.
pub(crate) fn read(text: &str, is_paced: bool) -> Result<Class, NetError> {
    let wrong = |why: String| NetError::new(NetErrorKind::Request, why);
    match text.split_once(':').map_or((text, None), |(word, number)| (word, Some(number))) {
        ("fair", None) => return Ok(Class::Fair { weight: 1 }),
        ("background", None) => return Ok(Class::Background),
        ("fair", Some(weight)) => {
            let weight = weight.parse().ok().filter(|weight| (1..=1000).contains(weight));
            let weight = weight.ok_or_else(|| wrong(format!("`{text}`: a weight is 1 to 1000, as in fair:3")))?;
            return Ok(Class::Fair { weight });
        }
        _ => {}
    }
    let guarantee: Guarantee = text.parse().map_err(|error| {
        wrong(format!("`{text}` is no share of the wire: {error}; 4ms/100ms, 4ms/100ms+slack, fair:3 or background"))
    })?;
    if !is_paced {
        return Err(wrong(format!(
            "`{text}`: a slice is a part of a wire whose rate is known; as root: streamline net up DEVICE --addr ADDRESS/BITS --rate 100M"
        )));
    }
    Ok(Class::Guaranteed(guarantee))
}

/// The text of a class.
pub(crate) fn text(class: Class) -> String {
    match class {
        Class::Guaranteed(guarantee) => guarantee.to_string(),
        Class::Fair { weight: 1 } => "fair".into(),
        Class::Fair { weight } => format!("fair:{weight}"),
        Class::Background => "background".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        for good in ["4ms/100ms", "4ms/100ms+slack", "fair", "fair:3", "background"] {
            assert_eq!(text(read(good, true).unwrap()), good);
        }
        for bad in ["", "fair:0", "fair:x", "background:1", "4ms", "5ms/4ms", "0ms/1ms"] {
            assert_eq!(read(bad, true).unwrap_err().kind, NetErrorKind::Request, "{bad}");
        }
        assert!(read("4ms/100ms", false).unwrap_err().text.contains("--rate"));
        assert!(read("fair:2", false).is_ok());
    }
}
