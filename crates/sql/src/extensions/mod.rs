//! The extensions that the program brings, under PostgreSQL 15's names and versions.
//!
//! An extension is a script of definitions, which CREATE EXTENSION runs in the schema of the
//! extension. Its functions are functions like those of users, found by the search path, except
//! that the program computes them itself: the body of a function in C is the name of a routine of
//! [`crate::expr::linked`].
//!
//! **Invariant.** Every body of a function in C of a script is such a name (a test sees to it), and
//! a script has no other statements than CREATE EXTENSION runs ([`crate::ddl::extension`]).

/// An extension that can be created.
pub struct Available {
    pub name: &'static str,
    pub version: &'static str,
    pub comment: &'static str,
    /// Whether who may make schemas in the database may create it; else only superusers may.
    pub trusted: bool,
    /// Whether it may be moved to another schema.
    pub relocatable: bool,
    script: &'static str,
}

const fn available(
    name: &'static str,
    version: &'static str,
    comment: &'static str,
    script: &'static str,
) -> Available {
    Available {
        name,
        version,
        comment,
        trusted: true,
        relocatable: true,
        script,
    }
}

/// Those that are not in every database.
pub const ALL: &[Available] = &[
    available(
        "citext",
        "1.6",
        "data type for case-insensitive character strings",
        include_str!("citext.sql"),
    ),
    available(
        "fuzzystrmatch",
        "1.1",
        "determine similarities and distance between strings",
        include_str!("fuzzystrmatch.sql"),
    ),
    available(
        "hstore",
        "1.8",
        "data type for storing sets of (key, value) pairs",
        include_str!("hstore.sql"),
    ),
    Available {
        trusted: false,
        ..available(
            "pg_stat_statements",
            "1.10",
            "track planning and execution statistics of all SQL statements executed",
            include_str!("pg_stat_statements.sql"),
        )
    },
    available(
        "pg_trgm",
        "1.6",
        "text similarity measurement and index searching based on trigrams",
        include_str!("pg_trgm.sql"),
    ),
    available(
        "pgcrypto",
        "1.3",
        "cryptographic functions",
        include_str!("pgcrypto.sql"),
    ),
    available(
        "unaccent",
        "1.1",
        "text search dictionary that removes accents",
        include_str!("unaccent.sql"),
    ),
    available(
        "uuid-ossp",
        "1.1",
        "generate universally unique identifiers (UUIDs)",
        include_str!("uuid_ossp.sql"),
    ),
];

/// An operator of an extension, which a function of it computes. It is there for statements whose
/// path leads to the extension's schema.
pub struct Operator {
    pub symbol: &'static str,
    pub extension: &'static str,
    pub function: &'static str,
}

const fn operator(
    symbol: &'static str,
    extension: &'static str,
    function: &'static str,
) -> Operator {
    Operator {
        symbol,
        extension,
        function,
    }
}

const OPERATORS: &[Operator] = &[
    operator("->", "hstore", "fetchval"),
    operator("->", "hstore", "slice_array"),
    operator("?", "hstore", "exist"),
    operator("?|", "hstore", "exists_any"),
    operator("?&", "hstore", "exists_all"),
    operator("-", "hstore", "delete"),
    operator("||", "hstore", "hs_concat"),
    operator("@>", "hstore", "hs_contains"),
    operator("<@", "hstore", "hs_contained"),
    operator("%", "pg_trgm", "similarity_op"),
    operator("<%", "pg_trgm", "word_similarity_op"),
    operator("%>", "pg_trgm", "word_similarity_commutator_op"),
    operator("<<%", "pg_trgm", "strict_word_similarity_op"),
    operator("%>>", "pg_trgm", "strict_word_similarity_commutator_op"),
    operator("<->", "pg_trgm", "similarity_dist"),
    operator("<<->", "pg_trgm", "word_similarity_dist_op"),
    operator("<->>", "pg_trgm", "word_similarity_dist_commutator_op"),
    operator("<<<->", "pg_trgm", "strict_word_similarity_dist_op"),
    operator(
        "<->>>",
        "pg_trgm",
        "strict_word_similarity_dist_commutator_op",
    ),
];

/// The operators of a symbol, of any extension.
pub fn operators(symbol: &str) -> impl Iterator<Item = &'static Operator> {
    OPERATORS.iter().filter(move |o| o.symbol == symbol)
}

pub fn find(name: &str) -> Option<&'static Available> {
    ALL.iter().find(|e| e.name == name)
}

impl Available {
    /// The statements of the script.
    pub fn statements(&self) -> impl Iterator<Item = &'static str> {
        let statements = self.script.split(";\n").map(str::trim);
        statements.filter(|s| !s.is_empty())
    }

    /// The library of its functions, as `pg_proc` has it.
    pub fn library(name: &str) -> String {
        format!("$libdir/{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::ALL;
    use crate::expr::linked;
    use crate::parse::define::Definition;
    use crate::parse::utility::Utility;
    use crate::parse::{self, Command};
    use crate::types::own::Kind;

    #[test]
    fn scripts_define_functions_that_the_program_has() {
        for extension in ALL {
            let mut defined = 0;
            for statement in extension.statements() {
                if let Some(name) = statement.strip_prefix("create type ") {
                    assert!(Kind::named(name).is_some(), "{name} is no type");
                    continue;
                }
                let statement = statement.replace("@extschema@", "public");
                let Ok(Command::Utility(utility)) = parse::statement(&statement) else {
                    panic!("{}: {statement}", extension.name);
                };
                if let Utility::Define(definition) = *utility
                    && let Definition::CreateFunction(f) = *definition
                {
                    defined += 1;
                    let is_linked = f.language.as_deref() == Some("c");
                    assert!(
                        !is_linked || linked::find(&f.body).is_some(),
                        "{} of {} is no routine",
                        f.body,
                        extension.name
                    );
                }
            }
            assert!(defined > 0, "{} defines nothing", extension.name);
        }
    }
}
