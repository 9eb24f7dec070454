#include "egress/wire/host_name.h"

/* The byte as it stands in a name, or 0. */
static char folded(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (char)(c - 'A' + 'a');
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ? c : '\0';
}

bool host_name_add_label(struct host_name *name, struct str label)
{
    size_t dot = name->len ? 1 : 0;

    if (label.len == 0 || label.len > HOST_LABEL_MAX ||
        name->len + dot + label.len > HOST_NAME_LENGTH)
        return false;
    if (dot)
        name->text[name->len++] = '.';
    for (size_t i = 0; i < label.len; i++) {
        char c = folded(label.p[i]);

        if (!c)
            return false;
        name->text[name->len++] = c;
    }
    name->text[name->len] = '\0';
    return true;
}

bool host_name_set(struct host_name *name, struct str text)
{
    name->len = 0;
    name->text[0] = '\0';
    if (text.len > 1 && text.p[text.len - 1] == '.')
        text.len--;
    if (!text.len)
        return false;
    while (text.p)
        if (!host_name_add_label(name, str_split(&text, '.')))
            return false;
    return true;
}
