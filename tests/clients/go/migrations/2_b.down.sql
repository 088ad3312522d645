drop view gm_names; alter table gm_users drop column mail;
