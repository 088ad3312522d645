//! The locales of which there is a collation: those that ICU brings, as PostgreSQL 15 has them.

/// In an order that does not change: the place of each gives its object id.
pub const LOCALES: &str = "\
    und af-NA af-ZA af agq-CM agq ak-GH ak am-ET am ar-001 ar-AE ar-BH ar-DJ ar-DZ ar-EG ar-EH \
    ar-ER ar-IL ar-IQ ar-JO ar-KM ar-KW ar-LB ar-LY ar-MA ar-MR ar-OM ar-PS ar-QA ar-SA ar-SD \
    ar-SO ar-SS ar-SY ar-TD ar-TN ar-YE ar as-IN as asa-TZ asa ast-ES ast az-Cyrl-AZ az-Cyrl \
    az-Latn-AZ az-Latn az bas-CM bas be-BY be bem-ZM bem bez-TZ bez bg-BG bg bgc-IN bgc bho-IN bho \
    bm-ML bm bn-BD bn-IN bn bo-CN bo-IN bo br-FR br brx-IN brx bs-Cyrl-BA bs-Cyrl bs-Latn-BA \
    bs-Latn bs ca-AD ca-ES ca-FR ca-IT ca ccp-BD ccp-IN ccp ce-RU ce ceb-PH ceb cgg-UG cgg chr-US \
    chr ckb-IQ ckb-IR ckb cs-CZ cs cv-RU cv cy-GB cy da-DK da-GL da dav-KE dav de-AT de-BE de-CH \
    de-DE de-IT de-LI de-LU de dje-NE dje doi-IN doi dsb-DE dsb dua-CM dua dyo-SN dyo dz-BT dz \
    ebu-KE ebu ee-GH ee-TG ee el-CY el-GR el en-001 en-150 en-AE en-AG en-AI en-AS en-AT en-AU \
    en-BB en-BE en-BI en-BM en-BS en-BW en-BZ en-CA en-CC en-CH en-CK en-CM en-CX en-CY en-DE \
    en-DG en-DK en-DM en-ER en-FI en-FJ en-FK en-FM en-GB en-GD en-GG en-GH en-GI en-GM en-GU \
    en-GY en-HK en-IE en-IL en-IM en-IN en-IO en-JE en-JM en-KE en-KI en-KN en-KY en-LC en-LR \
    en-LS en-MG en-MH en-MO en-MP en-MS en-MT en-MU en-MV en-MW en-MY en-NA en-NF en-NG en-NL \
    en-NR en-NU en-NZ en-PG en-PH en-PK en-PN en-PR en-PW en-RW en-SB en-SC en-SD en-SE en-SG \
    en-SH en-SI en-SL en-SS en-SX en-SZ en-TC en-TK en-TO en-TT en-TV en-TZ en-UG en-UM \
    en-US-u-va-posix en-US en-VC en-VG en-VI en-VU en-WS en-ZA en-ZM en-ZW en eo-001 eo es-419 \
    es-AR es-BO es-BR es-BZ es-CL es-CO es-CR es-CU es-DO es-EA es-EC es-ES es-GQ es-GT es-HN \
    es-IC es-MX es-NI es-PA es-PE es-PH es-PR es-PY es-SV es-US es-UY es-VE es et-EE et eu-ES eu \
    ewo-CM ewo fa-AF fa-IR fa ff-Adlm-BF ff-Adlm-CM ff-Adlm-GH ff-Adlm-GM ff-Adlm-GN ff-Adlm-GW \
    ff-Adlm-LR ff-Adlm-MR ff-Adlm-NE ff-Adlm-NG ff-Adlm-SL ff-Adlm-SN ff-Adlm ff-Latn-BF \
    ff-Latn-CM ff-Latn-GH ff-Latn-GM ff-Latn-GN ff-Latn-GW ff-Latn-LR ff-Latn-MR ff-Latn-NE \
    ff-Latn-NG ff-Latn-SL ff-Latn-SN ff-Latn ff fi-FI fi fil-PH fil fo-DK fo-FO fo fr-BE fr-BF \
    fr-BI fr-BJ fr-BL fr-CA fr-CD fr-CF fr-CG fr-CH fr-CI fr-CM fr-DJ fr-DZ fr-FR fr-GA fr-GF \
    fr-GN fr-GP fr-GQ fr-HT fr-KM fr-LU fr-MA fr-MC fr-MF fr-MG fr-ML fr-MQ fr-MR fr-MU fr-NC \
    fr-NE fr-PF fr-PM fr-RE fr-RW fr-SC fr-SN fr-SY fr-TD fr-TG fr-TN fr-VU fr-WF fr-YT fr fur-IT \
    fur fy-NL fy ga-GB ga-IE ga gd-GB gd gl-ES gl gsw-CH gsw-FR gsw-LI gsw gu-IN gu guz-KE guz \
    gv-IM gv ha-GH ha-NE ha-NG ha haw-US haw he-IL he hi-IN hi-Latn-IN hi-Latn hi hr-BA hr-HR hr \
    hsb-DE hsb hu-HU hu hy-AM hy ia-001 ia id-ID id ig-NG ig ii-CN ii is-IS is it-CH it-IT it-SM \
    it-VA it ja-JP ja jgo-CM jgo jmc-TZ jmc jv-ID jv ka-GE ka kab-DZ kab kam-KE kam kde-TZ kde \
    kea-CV kea kgp-BR kgp khq-ML khq ki-KE ki kk-KZ kk kkj-CM kkj kl-GL kl kln-KE kln km-KH km \
    kn-IN kn ko-KP ko-KR ko kok-IN kok ks-Arab-IN ks-Arab ks-Deva-IN ks-Deva ks ksb-TZ ksb ksf-CM \
    ksf ksh-DE ksh ku-TR ku kw-GB kw ky-KG ky lag-TZ lag lb-LU lb lg-UG lg lkt-US lkt ln-AO ln-CD \
    ln-CF ln-CG ln lo-LA lo lrc-IQ lrc-IR lrc lt-LT lt lu-CD lu luo-KE luo luy-KE luy lv-LV lv \
    mai-IN mai mas-KE mas-TZ mas mer-KE mer mfe-MU mfe mg-MG mg mgh-MZ mgh mgo-CM mgo mi-NZ mi \
    mk-MK mk ml-IN ml mn-MN mn mni-Beng-IN mni-Beng mni mr-IN mr ms-BN ms-ID ms-MY ms-SG ms mt-MT \
    mt mua-CM mua my-MM my mzn-IR mzn naq-NA naq nb-NO nb-SJ nb nd-ZW nd ne-IN ne-NP ne nl-AW \
    nl-BE nl-BQ nl-CW nl-NL nl-SR nl-SX nl nmg-CM nmg nn-NO nn nnh-CM nnh no nus-SS nus nyn-UG nyn \
    om-ET om-KE om or-IN or os-GE os-RU os pa-Arab-PK pa-Arab pa-Guru-IN pa-Guru pa pcm-NG pcm \
    pl-PL pl ps-AF ps-PK ps pt-AO pt-BR pt-CH pt-CV pt-GQ pt-GW pt-LU pt-MO pt-MZ pt-PT pt-ST \
    pt-TL pt qu-BO qu-EC qu-PE qu raj-IN raj rm-CH rm rn-BI rn ro-MD ro-RO ro rof-TZ rof ru-BY \
    ru-KG ru-KZ ru-MD ru-RU ru-UA ru rw-RW rw rwk-TZ rwk sa-IN sa sah-RU sah saq-KE saq \
    sat-Olck-IN sat-Olck sat sbp-TZ sbp sc-IT sc sd-Arab-PK sd-Arab sd-Deva-IN sd-Deva sd se-FI \
    se-NO se-SE se seh-MZ seh ses-ML ses sg-CF sg shi-Latn-MA shi-Latn shi-Tfng-MA shi-Tfng shi \
    si-LK si sk-SK sk sl-SI sl smn-FI smn sn-ZW sn so-DJ so-ET so-KE so-SO so sq-AL sq-MK sq-XK sq \
    sr-Cyrl-BA sr-Cyrl-ME sr-Cyrl-RS sr-Cyrl-XK sr-Cyrl sr-Latn-BA sr-Latn-ME sr-Latn-RS \
    sr-Latn-XK sr-Latn sr su-Latn-ID su-Latn su sv-AX sv-FI sv-SE sv sw-CD sw-KE sw-TZ sw-UG sw \
    ta-IN ta-LK ta-MY ta-SG ta te-IN te teo-KE teo-UG teo tg-TJ tg th-TH th ti-ER ti-ET ti tk-TM \
    tk to-TO to tr-CY tr-TR tr tt-RU tt twq-NE twq tzm-MA tzm ug-CN ug uk-UA uk ur-IN ur-PK ur \
    uz-Arab-AF uz-Arab uz-Cyrl-UZ uz-Cyrl uz-Latn-UZ uz-Latn uz vai-Latn-LR vai-Latn vai-Vaii-LR \
    vai-Vaii vai vi-VN vi vun-TZ vun wae-CH wae wo-SN wo xh-ZA xh xog-UG xog yav-CM yav yi-001 yi \
    yo-BJ yo-NG yo yrl-BR yrl-CO yrl-VE yrl yue-Hans-CN yue-Hans yue-Hant-HK yue-Hant yue zgh-MA \
    zgh zh-Hans-CN zh-Hans-HK zh-Hans-MO zh-Hans-SG zh-Hans zh-Hant-HK zh-Hant-MO zh-Hant-TW \
    zh-Hant zh zu-ZA zu";
