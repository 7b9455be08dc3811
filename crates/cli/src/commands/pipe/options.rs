//! `key=value` words behind a ring's name, declared like a filter's parameters.

use crate::exit::CommandError;
use filter::{Param, Params};

pub(super) fn parse(words: &[String], declared: &'static [Param]) -> Result<Params, CommandError> {
    let keys = || declared.iter().map(|option| option.key);
    let mut params = Params::new();
    for word in words {
        let Some((key, text)) = word.split_once('=') else {
            return Err(CommandError::Wrong(format!(
                "`{word}` is no option: options are key=value, with {}",
                list(keys())
            )));
        };
        let Some(option) = declared.iter().find(|option| option.key == key) else {
            let hint = match request::nearest(key, keys()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are {}", list(keys())),
            };
            return Err(CommandError::Wrong(format!("no option `{key}`; {hint}")));
        };
        let value = option.kind.parse(text).map_err(|message| CommandError::Wrong(format!("{key}: {message}")))?;
        params.set(option.key, value);
    }
    params.fill_defaults(declared).map_err(|option| CommandError::Wrong(format!("`{}` is missing", option.key)))?;
    Ok(params)
}

fn list<'a>(keys: impl Iterator<Item = &'a str>) -> String {
    keys.collect::<Vec<_>>().join(", ")
}

pub(super) fn help(declared: &'static [Param]) -> String {
    let mut text = "Options, as key=value behind the name:\n".to_string();
    for option in declared {
        let default = option.default.map_or(String::new(), |default| format!(", default {default}"));
        text += &format!("  {:12} {} ({}{default})\n", option.key, option.help, option.kind);
    }
    text
}
