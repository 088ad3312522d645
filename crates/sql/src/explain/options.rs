//! What EXPLAIN's options mean.

use crate::error::{Error, Result};
use crate::parse::explain::ExplainOption;
use crate::types::SqlType;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    Text,
    Json,
    Xml,
    Yaml,
}

impl Format {
    fn named(name: &str) -> Option<Format> {
        Some(match name {
            "text" => Format::Text,
            "json" => Format::Json,
            "xml" => Format::Xml,
            "yaml" => Format::Yaml,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Options {
    pub format: Format,
    pub analyze: bool,
    pub verbose: bool,
    pub costs: bool,
    pub buffers: bool,
    pub wal: bool,
    pub timing: bool,
    pub summary: bool,
    pub settings: bool,
}

/// Those of a plain EXPLAIN.
pub(super) const PLAIN: Options = Options {
    format: Format::Text,
    analyze: false,
    verbose: false,
    costs: true,
    buffers: false,
    wal: false,
    timing: false,
    summary: false,
    settings: false,
};

impl Options {
    pub fn of(written: &[ExplainOption]) -> Result<Options> {
        let mut options = PLAIN;
        let (mut buffers, mut timing, mut summary) = (None, None, None);
        for option in written {
            match &*option.name {
                "analyze" => options.analyze = option.is_on()?,
                "verbose" => options.verbose = option.is_on()?,
                "costs" => options.costs = option.is_on()?,
                "buffers" => buffers = Some(option.is_on()?),
                "wal" => options.wal = option.is_on()?,
                "settings" => options.settings = option.is_on()?,
                "timing" => timing = Some(option.is_on()?),
                "summary" => summary = Some(option.is_on()?),
                "format" => {
                    let word = option.word()?;
                    options.format = Format::named(&word).ok_or_else(|| {
                        let message =
                            format!("unrecognized value for EXPLAIN option \"format\": \"{word}\"");
                        Error::new("22023", message).at(option.position)
                    })?;
                }
                name => {
                    let message = format!("unrecognized EXPLAIN option \"{name}\"");
                    return Err(Error::new("42601", message).at(option.position));
                }
            }
        }
        let requires_analyze = |name| {
            let message = format!("EXPLAIN option {name} requires ANALYZE");
            Err(Error::new("22023", message))
        };
        if options.wal && !options.analyze {
            return requires_analyze("WAL");
        }
        options.timing = timing.unwrap_or(options.analyze);
        if options.timing && !options.analyze {
            return requires_analyze("TIMING");
        }
        options.buffers = buffers.unwrap_or(options.analyze);
        options.summary = summary.unwrap_or(options.analyze);
        Ok(options)
    }
}

/// The type of the answer's column. What is wrong with the options is said when EXPLAIN runs.
pub(crate) fn column_type(written: &[ExplainOption]) -> SqlType {
    let formats = written.iter().filter(|o| o.name == "format");
    let last = formats.rev().find_map(|o| Format::named(&o.word().ok()?));
    match last {
        Some(Format::Json) => SqlType::Json,
        // There is no type xml.
        Some(Format::Xml | Format::Yaml | Format::Text) | None => SqlType::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::explain::OptionValue;

    fn option(name: &str, value: Option<&str>) -> ExplainOption {
        ExplainOption {
            name: name.to_string(),
            value: value.map(|v| OptionValue::Word(v.to_string())),
            position: 10,
        }
    }

    #[test]
    fn some_options_follow_analyze() {
        let plain = Options::of(&[]).unwrap();
        assert_eq!(plain, PLAIN);
        let analyze = Options::of(&[option("analyze", None)]).unwrap();
        assert!(analyze.timing && analyze.buffers && analyze.summary);
        let off = [option("timing", Some("off")), option("analyze", None)];
        assert!(!Options::of(&off).unwrap().timing);
    }

    #[test]
    fn what_is_wrong_has_postgresqls_errors() {
        let of = |name, value| Options::of(&[option(name, value)]).unwrap_err();
        let error = of("nosuch", None);
        assert_eq!(
            (error.sqlstate(), error.fields().position),
            ("42601", Some(10))
        );
        assert_eq!(of("format", None).message(), "format requires a parameter");
        assert_eq!(of("format", Some("jso")).sqlstate(), "22023");
        let message = "costs requires a Boolean value";
        assert_eq!(of("costs", Some("maybe")).message(), message);
        for name in ["wal", "timing"] {
            let message = format!("EXPLAIN option {} requires ANALYZE", name.to_uppercase());
            assert_eq!(of(name, None).message(), message);
        }
    }

    #[test]
    fn the_last_format_decides_the_columns_type() {
        let formats = ["xml", "json"].map(|f| option("format", Some(f)));
        assert_eq!(column_type(&formats), SqlType::Json);
        assert_eq!(column_type(&formats[..1]), SqlType::Text);
    }
}
