#include "base/test.h"
TEST(none){}
