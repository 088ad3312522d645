//! The startup parameter `options`: command-line switches of PostgreSQL's server, which libpq sends
//! for `PGOPTIONS`.
//!
//! `-c name=value` and `--name=value` set a parameter. `-e`, `-S`, `-f` and `-t` are short for some
//! parameters. A backslash takes the next character as it is, also a blank.

use sql::Error;

/// The parameters that the switches set, in their order.
pub fn parse(options: &str) -> sql::Result<Vec<(String, String)>> {
    let mut settings = Vec::new();
    let words = split(options);
    let mut rest = words.iter().map(String::as_str);
    let mut only_names = false;
    while let Some(word) = rest.next() {
        match word.strip_prefix('-') {
            _ if only_names => return Err(invalid(word)),
            Some("-") => only_names = true,
            Some(switch) if !switch.is_empty() => switches(switch, &mut rest, &mut settings)?,
            _ => return Err(invalid(word)),
        }
    }
    Ok(settings)
}

/// Splits the text into words at blanks.
fn split(options: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = options.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c' => words.extend(word.take()),
            // A backslash at the end escapes nothing.
            '\\' => word.get_or_insert_default().extend(chars.next()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Reads a word of switches, without its dash. The word is several letters, or one letter with its
/// value. The value may also be the next word.
fn switches<'w>(
    word: &'w str,
    rest: &mut impl Iterator<Item = &'w str>,
    settings: &mut Vec<(String, String)>,
) -> sql::Result<()> {
    for (at, letter) in word.char_indices() {
        let behind = &word[at + letter.len_utf8()..];
        if letter == 'e' {
            settings.push(("DateStyle".into(), "euro".into()));
            continue;
        }
        if !matches!(letter, 'c' | '-' | 'S' | 'f' | 't') {
            return Err(invalid(&format!("-{word}")));
        }
        let value = match behind {
            "" => rest.next().ok_or_else(|| invalid(&format!("-{word}")))?,
            behind => behind,
        };
        settings.push(match letter {
            'c' => assignment("-c ", value)?,
            '-' => assignment("--", value)?,
            'S' => ("work_mem".into(), value.into()),
            'f' => (
                method(value)
                    .ok_or_else(|| invalid(&format!("-f{value}")))?
                    .into(),
                "off".into(),
            ),
            _ => (
                statistics(value)
                    .ok_or_else(|| invalid(&format!("-t{value}")))?
                    .into(),
                "on".into(),
            ),
        });
        return Ok(());
    }
    Ok(())
}

/// Reads `name=value`. A dash in the name stands for an underscore.
fn assignment(switch: &str, text: &str) -> sql::Result<(String, String)> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| Error::new("42601", format!("{switch}{text} requires a value")))?;
    Ok((name.replace('-', "_"), value.to_string()))
}

/// The parameter for the method of scanning or joining that `-f` forbids.
fn method(letter: &str) -> Option<&'static str> {
    Some(match letter.chars().next()? {
        's' => "enable_seqscan",
        'i' => "enable_indexscan",
        'o' => "enable_indexonlyscan",
        'b' => "enable_bitmapscan",
        't' => "enable_tidscan",
        'n' => "enable_nestloop",
        'm' => "enable_mergejoin",
        'h' => "enable_hashjoin",
        _ => return None,
    })
}

/// The parameter for the statistics that `-t` asks for.
fn statistics(name: &str) -> Option<&'static str> {
    Some(match (name.as_bytes().first()?, name.as_bytes().get(1)) {
        (b'p', Some(b'a')) => "log_parser_stats",
        (b'p', Some(b'l')) => "log_planner_stats",
        (b'e', _) => "log_executor_stats",
        _ => return None,
    })
}

fn invalid(word: &str) -> Error {
    let message = format!("invalid command-line argument for server process: {word}");
    Error::new("42601", message).hint("Use -c name=value or --name=value.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(options: &str) -> Vec<(String, String)> {
        parse(options).unwrap_or_else(|e| panic!("{options:?}: {e}"))
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_string(), value.to_string())
    }

    #[test]
    fn switches_are_read_as_postgresql_reads_them() {
        let geqo = pair("geqo", "off");
        assert_eq!(parsed(""), []);
        assert_eq!(parsed("  -c   geqo=off  "), std::slice::from_ref(&geqo));
        assert_eq!(
            parsed("-cgeqo=off --work-mem=8MB"),
            [geqo.clone(), pair("work_mem", "8MB")]
        );
        assert_eq!(parsed("-- "), []);
        assert_eq!(parsed("-ecgeqo=off"), [pair("DateStyle", "euro"), geqo]);
        assert_eq!(
            parsed("-S 4096 -fs"),
            [pair("work_mem", "4096"), pair("enable_seqscan", "off")]
        );
        assert_eq!(
            parsed(r"-c application_name=a\ b\\c\"),
            [pair("application_name", r"a b\c")]
        );
        assert_eq!(parsed("-c a.b=x=y"), [pair("a.b", "x=y")]);
    }

    #[test]
    fn what_postgresql_refuses_is_refused() {
        let wrong = "invalid command-line argument for server process: ";
        for (options, message) in [
            ("-c", format!("{wrong}-c")),
            ("-x", format!("{wrong}-x")),
            ("hello", format!("{wrong}hello")),
            ("-", format!("{wrong}-")),
            ("-cgeqo=off -- x", format!("{wrong}x")),
            ("-c geqo", "-c geqo requires a value".to_string()),
            ("--geqo", "--geqo requires a value".to_string()),
        ] {
            let e = parse(options).expect_err(options);
            assert_eq!((e.sqlstate(), e.message()), ("42601", message.as_str()));
        }
    }

    /// Any text gives parameters or an error. What was escaped comes out as it went in.
    #[test]
    fn fuzz_options() {
        let seed = crate::testing::seed("BRAID_FUZZ_SEED");
        let mut random = crate::testing::Random::new(seed);
        const PIECES: &[&str] = &[
            "-", "--", "c", "-c", " ", "\\", "=", "geqo", "on", "é", "S", "f", "\t", "e", "\u{1}",
            "x",
        ];
        for _ in 0..100_000 {
            let count = random.below(12);
            let text: String = (0..count)
                .map(|_| PIECES[random.below(PIECES.len())])
                .collect();
            if let Ok(settings) = parse(&text) {
                assert!(settings.len() <= text.len());
            }
            let escaped: String = text.chars().flat_map(|c| ['\\', c]).collect();
            let given = parse(&format!("-c x={escaped} --y={escaped}"));
            let given = given.unwrap_or_else(|e| panic!("seed {seed}: {escaped:?}: {e}"));
            assert_eq!(given, [pair("x", &text), pair("y", &text)], "seed {seed}");
        }
    }
}
