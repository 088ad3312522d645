create function unaccent(text, text) returns text language c stable strict parallel safe as 'unaccent_dict';
create function unaccent(text) returns text language c stable strict parallel safe as 'unaccent_dict';
